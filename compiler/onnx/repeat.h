/* A graph that is done again and again: what Loop and Scan share. */
#ifndef COMPILER_ONNX_REPEAT_H
#define COMPILER_ONNX_REPEAT_H

#include "compiler/onnx/ahead.h"
#include "compiler/onnx/carry.h"
#include "compiler/onnx/control.h"

#define MAX_UNROLL 64 /* iterations imported one by one */

typedef struct Repeat {
    Node *n;
    const Onnx__GraphProto *body;
    bool is_loop;   /* the body begins with iteration number and condition, and gives a condition */
    int64_t trips;  /* at most; may be a dimension that varies */
    int64_t done;   /* iterations imported so far */
    bool stopped;   /* no more of them for certain */
    Value *alive;   /* bool: whether the next iteration takes place; NULL: it does */
    Value *limit;   /* i64: number of iterations known at run time only; NULL: `trips` */
    bool zero_rows; /* rows after the end are zeros */
    int n_state;
    Entity **state; /* carried values, as after `done` iterations */
    Carry *carry;   /* how a loop carries them; NULL: with the extents that they have ... */
    bool claims;    /* ... which those after an iteration are taken to be, where they may be */
    Counted *counted; /* states that count from here on; NULL: nobody knows */
    bool certain;     /* the body's condition holds until the last iteration */
    bool folds;       /* set where a loop would do, but all of it is constant */
    int64_t seen;     /* iterations as far as one can see, were extents those of the first; 0: nobody
                         knows */
    bool few;         /* as far as one can see there are no more than MAX_UNROLL */
    int n_slices;   /* Scan: values of which each iteration gets one slice ... */
    Value **sliced;
    int *axis;        /* ... along this axis ... */
    bool *backward;   /* ... from the end */
    int n_rows;       /* outputs that are stacked */
    bool *filled;     /* states: sequences that get an item in each iteration. These are stacked, too,
                         behind the outputs ... */
    int n_filled;     /* ... and so many */
    ValueVec *rows;   /* for each the parts so far, stacked along dimension 0 */
    ValueVec ran;     /* for each part how many of its iterations took place, i64[1] ... */
    int64_t most_ran; /* ... and in all at most, a dimension */
    bool bounded;     /* `trips` is not of the loop itself: it might go on */
    const char *bound_name; /* what --dim calls the greatest number of iterations */
    int64_t
        n_rows_found; /* rows that there are where iterations may be left out; -1: not asked yet */
} Repeat;

/* Runs all iterations. False after reports. */
bool repeat_all(Repeat *r);
/* State i after them, and stacked output i, as one tensor. NULL after a report. */
Entity *repeat_state(Repeat *r, int i);
Value *repeat_stacked(Repeat *r, int i);
/* There are `limit` iterations (i64, a scalar) at most; called before the first one. */
void repeat_limit(Repeat *r, Value *limit);

/* v without dimension `axis`, at a position along it. */
Value *take_slice(Graph *g, Value *v, int axis, const Expr *at);
/* The first `found` elements along dimension 0. */
Value *first_rows(Graph *g, Value *v, int64_t found);

#endif
