/* Elements of columns are dealt to sums of 16 bits; see deal.h.
 *
 * From step to step the window moves on by as many elements as a step has places, and those that it
 * leaves have to be dealt. What is left of the places goes to the largest of the others that fit,
 * so that what has to be dealt in the end is small. Where that is too much all the same, for one of
 * the columns, the window stays for a step: from then on there are places to spare.
 */
#include "passes/deal.h"

#include <stdlib.h>
#include <string.h>

#define SUMS   2            /* of a step */
#define PLACES (SUMS * FEW) /* ... for elements */

typedef struct Element {
    int32_t at;
    int16_t weight, size;
} Element;

/* Elements of the window that are not dealt yet, by size. */
typedef struct Hand {
    int n;
    Element element[BYTES_WINDOW];
} Hand;

typedef struct Sum {
    int n, much[2]; /* of the positive ones, and of the negative ones */
    Element element[FEW];
} Sum;

static void take(Hand *h, Element e) {
    int to = h->n++;
    for (; to > 0 && h->element[to - 1].size < e.size; to--) h->element[to] = h->element[to - 1];
    h->element[to] = e;
}

static void leave(Hand *h, int k) {
    memmove(&h->element[k], &h->element[k + 1], (size_t)(--h->n - k) * sizeof *h->element);
}

static void add(Sum *s, const Element *e) {
    s->element[s->n++] = *e;
    s->much[e->weight < 0] += e->size;
}

static bool fits(const Sum *s, const Element *e) {
    return s->n < FEW && s->much[e->weight < 0] + e->size <= SUM_MOST;
}

/* The sum that the element fits into, with least of its sign; NULL: there is none. */
static Sum *sum_for(Sum *sum, const Element *e) {
    Sum *best = NULL;
    const int sign = e->weight < 0;
    for (int i = 0; i < SUMS; i++)
        if (fits(&sum[i], e) && (!best || sum[i].much[sign] < best->much[sign])) best = &sum[i];
    return best;
}

/* Gives a sum with a place to spare two smaller elements for one that is not before `next`. */
static bool fill(Sum *s, int64_t next, Hand *hand) {
    for (int i = 0; i < s->n; i++) {
        const Element e = s->element[i];
        if (e.at < next) continue;
        Sum less = *s;
        less.element[i] = less.element[--less.n];
        less.much[e.weight < 0] -= e.size;
        for (int a = 0; a < hand->n; a++) {
            if (!fits(&less, &hand->element[a])) continue;
            Sum one = less;
            add(&one, &hand->element[a]);
            for (int b = a + 1; b < hand->n; b++) {
                if (!fits(&one, &hand->element[b])) continue;
                add(&one, &hand->element[b]);
                *s = one;
                leave(hand, b);
                leave(hand, a);
                take(hand, e);
                return true;
            }
        }
    }
    return false;
}

/* Deals a lane what has to be dealt in the step, elements before `next`, and others. False if some
 * of the first are left. */
static bool deal_step(int64_t next, Hand *hand, int lane, DealtStep *step) {
    Sum sum[SUMS] = {{0}};
    for (int must = 1; must >= 0; must--) {
        int left = 0;
        for (int k = 0; k < hand->n; k++) {
            const Element e = hand->element[k];
            Sum *s = must <= (e.at < next) ? sum_for(sum, &e) : NULL;
            if (!s && e.at < next) return false;
            if (s)
                add(s, &e);
            else
                hand->element[left++] = e;
        }
        hand->n = left;
    }
    for (int i = 0; i < SUMS; i++) {
        while (sum[i].n < FEW && fill(&sum[i], next, hand)) {
        }
        for (int k = 0; k < sum[i].n; k++) {
            const Element *e = &sum[i].element[k];
            step->to[k / 2][lane][i * 2 + k % 2] = (uint8_t)(e->at - step->place);
            step->weight[k / 2][lane][i * 2 + k % 2] = (int8_t)e->weight;
        }
    }
    return true;
}

static void take_columns(const int8_t *weight, int columns, int64_t depth, int64_t at, Hand *hand) {
    for (int i = 0; i < columns; i++) {
        const int w = weight[i * depth + at];
        if (w) take(&hand[i], (Element){(int32_t)at, (int16_t)w, (int16_t)abs(w)});
    }
}

/* Deals all lanes; false if one of them has more to be dealt than fits. */
static bool deal_lanes(int columns, int64_t next, Hand *hand, DealtStep *step) {
    for (int i = 0; i < columns; i++)
        if (!deal_step(next, &hand[i], i, step)) return false;
    return true;
}

void deal_columns(Arena *arena, const int8_t *weight, int columns, int64_t depth,
                  DealtSteps *steps) {
    const int64_t last = depth - BYTES_WINDOW;
    Hand hand[MOST_LANES] = {{0}};
    int64_t taken = 0;
    for (int64_t begin = 0; begin < depth;) {
        const int64_t place = begin < last ? begin : last, next = begin + PLACES;
        DealtStep step = {.place = place};
        Hand before[MOST_LANES];
        for (; taken < place + BYTES_WINDOW; taken++)
            take_columns(weight, columns, depth, taken, hand);
        memcpy(before, hand, (size_t)columns * sizeof *hand);
        if (deal_lanes(columns, next, hand, &step)) {
            begin = next;
        } else {
            memcpy(hand, before, (size_t)columns * sizeof *hand);
            step = (DealtStep){.place = place};
            deal_lanes(columns, 0, hand, &step); /* nothing has to be dealt */
        }
        vec_push(arena, steps, step);
    }
}

/* --- tables ----------------------------------------------------------------------------------- */

static size_t step_bytes(const Dealt *d) {
    return (size_t)(2 * d->lanes * FEW);
}

/* Lays out what there is for `room` steps of each block. */
static void lay_out(Arena *arena, Dealt *d, int64_t room) {
    Dealt new = *d;
    const size_t each = step_bytes(d);
    if (room > d->room) {
        new.place = ARENA_ARRAY(arena, d->blocks * room, int32_t);
        new.to = arena_array(arena, (size_t)(d->blocks * room), each);
        new.weight = arena_array(arena, (size_t)(d->blocks * room), each);
    }
    for (int64_t b = 0; b < d->n; b++) {
        const size_t from = (size_t)(b * d->room), to = (size_t)(b * room), n = (size_t)d->most;
        memmove(&new.place[to], &d->place[from], n * sizeof *new.place);
        memmove(&new.to[to * each], &d->to[from * each], n * each);
        memmove(&new.weight[to * each], &d->weight[from * each], n * each);
    }
    new.room = room;
    *d = new;
}

void deal_block(Arena *arena, Dealt *d, const int8_t *weight) {
    const size_t four = (size_t)(d->lanes * FEW);
    d->steps.n = 0;
    deal_columns(arena, weight, d->lanes, d->depth, &d->steps);
    const int n = d->steps.n;
    if (n > d->room) lay_out(arena, d, n + n / 8 + 2); /* most blocks have about as many */
    if (n > d->most) d->most = n;
    d->all += n;
    for (int i = 0; i < n; i++) {
        const DealtStep *step = &d->steps.items[i];
        const size_t at = (size_t)(d->n * d->room + i);
        d->place[at] = (int32_t)step->place;
        for (size_t k = 0; k < 2; k++) {
            memcpy(&d->to[at * step_bytes(d) + k * four], step->to[k], four);
            memcpy(&d->weight[at * step_bytes(d) + k * four], step->weight[k], four);
        }
    }
    if (++d->n == d->blocks) lay_out(arena, d, d->most);
}
