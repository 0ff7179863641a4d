/* passes/deal.h */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "passes/deal.h"

#define DEPTH   200
#define COLUMNS 8

typedef int Weights(int column, int element);

/* About normal, the largest 127. */
static int bell(int column, int element) {
    uint32_t seed = (uint32_t)(column * 1000 + element) * 2654435761u + 12345;
    int sum = 0;
    for (int i = 0; i < 4; i++) sum += (int)((seed = seed * 1664525 + 1013904223) >> 16) % 65;
    return sum - 128 > 127 ? 127 : sum - 128;
}

static int narrow(int column, int element) {
    return bell(column, element) / 8;
}

static int large(int column, int element) {
    return (column + element) % 2 ? 127 : -128;
}

static int positive(int column, int element) {
    (void)column, (void)element;
    return 127;
}

static int one_column(int column, int element) {
    return column == 5 ? 100 + element % 28 : 1;
}

static int none(int column, int element) {
    (void)column, (void)element;
    return 0;
}

/* Deals the columns, checks what deal.h promises and returns the number of steps. */
static int deal(Arena *arena, int64_t depth, Weights *weights) {
    int8_t weight[COLUMNS * DEPTH];
    DealtSteps steps = {0};
    for (int c = 0; c < COLUMNS; c++)
        for (int i = 0; i < depth; i++) weight[c * depth + i] = (int8_t)weights(c, i);
    deal_columns(arena, weight, COLUMNS, depth, &steps);
    for (int i = 0; i < steps.n; i++) {
        assert_in_range(steps.items[i].place, 0, depth - BYTES_WINDOW);
        if (i) assert_true(steps.items[i].place >= steps.items[i - 1].place);
    }
    for (int c = 0; c < COLUMNS; c++) {
        int found[DEPTH] = {0};
        for (int i = 0; i < steps.n; i++)
            for (int half = 0; half < FEW; half += 2) {
                const DealtStep *s = &steps.items[i];
                int sum[2] = {0};
                for (int k = 0; k < FEW; k++) {
                    const int w = s->weight[k / 2][c][half + k % 2];
                    const int to = s->to[k / 2][c][half + k % 2];
                    assert_in_range(to, 0, BYTES_WINDOW - 1);
                    found[s->place + to] += w;
                    sum[w < 0] += abs(w);
                }
                assert_in_range(sum[0], 0, SUM_MOST);
                assert_in_range(sum[1], 0, SUM_MOST);
            }
        for (int i = 0; i < depth; i++) assert_int_equal(found[i], weight[c * depth + i]);
    }
    return steps.n;
}

static void test_deal(void **state) {
    Arena arena;
    (void)state;
    arena_init(&arena, 0, NULL, NULL);
    static const int64_t depths[] = {16, 17, 20, 24, 31, 32, 40, 64, 100, 128, DEPTH};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        const int64_t depth = depths[i], least = (depth + 7) / 8;
        assert_int_equal(deal(&arena, depth, narrow), least);
        assert_int_equal(deal(&arena, depth, none), least);
        deal(&arena, depth, one_column);
        /* two of a sum's four places stay empty, or three */
        assert_in_range(deal(&arena, depth, large), (depth + 3) / 4, depth);
        assert_in_range(deal(&arena, depth, positive), (depth + 1) / 2, depth);
        assert_in_range(deal(&arena, depth, bell), least, least + least / 8 + 4);
    }
    arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_deal)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
