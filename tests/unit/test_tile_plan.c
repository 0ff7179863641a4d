/* Registers of a matrix unit: pieces, and which register holds what. */
#include "ir/tile_plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool plan_of(TilePlan *plan, int64_t lines, int64_t rows, int64_t columns) {
    return tile_pieces(lines, rows, 1, &plan->rows) &&
           tile_pieces(1, columns, TILE_SIDE, &plan->columns) && tile_plan(plan);
}

/* What a register is used for: sums, or pieces of one operand, of one size. */
static void check_plan(const TilePlan *plan) {
    int sums = plan->rows.n * plan->columns.n, extent[TILE_REGISTERS] = {0};
    for (int k = 0; k < 2; k++) {
        const TilePieces *pieces = k ? &plan->columns : &plan->rows;
        for (int i = 0; i < pieces->n; i++) {
            int reg = pieces->reg[i], mark = pieces->extent[i] + 100 * k;
            assert_in_range(pieces->extent[i], 1, TILE_SIDE);
            assert_in_range(reg, sums, TILE_REGISTERS - 1);
            assert_true(extent[reg] == 0 || extent[reg] == mark);
            extent[reg] = mark;
        }
    }
}

static void test_pieces(void **state) {
    (void)state;
    TilePieces p;
    assert_true(tile_pieces(1, 28, 1, &p));
    assert_int_equal(p.n, 2);
    assert_int_equal(p.extent[0], 14);
    assert_int_equal(p.extent[1], 14);
    assert_true(tile_pieces(1, 28, TILE_SIDE, &p));
    assert_int_equal(p.extent[0], 16);
    assert_int_equal(p.extent[1], 12);
    assert_true(tile_pieces(3, 7, 1, &p));
    assert_int_equal(p.n, 3);
    assert_int_equal(p.extent[2], 7);
    assert_false(tile_pieces(9, 7, 1, &p));
    assert_false(tile_pieces(1, TILE_REGISTERS * TILE_SIDE + 1, 1, &p));
    assert_false(tile_pieces(1, 0, 1, &p));
}

static void test_registers(void **state) {
    (void)state;
    TilePlan plan;
    int fit = 0;
    for (int64_t lines = 1; lines <= 8; lines++)
        for (int64_t rows = 1; rows <= 128; rows++)
            for (int64_t columns = 1; columns <= 128; columns++) {
                if (!plan_of(&plan, lines, rows, columns)) continue;
                int64_t all = 0;
                for (int i = 0; i < plan.rows.n; i++) all += plan.rows.extent[i];
                assert_int_equal(all, lines * rows);
                check_plan(&plan);
                fit++;
            }
    assert_true(fit > 1000);
    assert_true(plan_of(&plan, 1, 32, 32));
    assert_true(plan_of(&plan, 1, 16, 96));
    assert_true(plan_of(&plan, 6, 7, 16));
    assert_false(plan_of(&plan, 1, 33, 33)); /* nine sums */
    assert_false(plan_of(&plan, 1, 48, 32)); /* six, and none left for what passes */
    assert_false(plan_of(&plan, 1, 16, 88)); /* six of columns in turn, the last one narrower */
}

static void test_parts(void **state) {
    (void)state;
    assert_int_equal(tile_part(32, 32), 2);
    assert_int_equal(tile_part(16, 64), 1);
    assert_int_equal(tile_part(16, 16), 4);
    assert_int_equal(tile_part(7, 16), 7);
    assert_int_equal(tile_part(13, 48), 1);
    assert_int_equal(tile_part(1, 1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_registers),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
