/* Inside of cvector.c, and to read what cprint.c prints alike: the values of lanes, as expressions
 * on GNU C vectors. */
#ifndef CODEGEN_CLANES_H
#define CODEGEN_CLANES_H

#include "codegen/cexpr.h"

/* A value that is mentioned more than once. */
typedef struct LaneValue {
    const Expr *e;
    int uses;
    const char *name; /* of the constant that holds it in this step; NULL: none yet */
} LaneValue;

/* A vector that stays in a register while several steps use it. */
typedef struct KeptLoad {
    const Expr *load;
    const Expr *shift; /* parts of its bytes, so many bits up; NULL: itself */
    int64_t start;
    const char *name;
} KeptLoad;

#define LANES_PUT 4

/* The lanes that one statement computes, in one step of the unrolled loops. */
typedef struct Lanes {
    Printer *p;
    int var;            /* of the vector loop */
    int64_t start;      /* its first value here, */
    bool strip;         /* ... behind the variable's own */
    int width;          /* how many; 1: a scalar */
    int there;          /* of them are in memory, if not 0; the others hold anything */
    const char *rest;   /* ... or, if not NULL, as many as this expression says */
    const Expr **value; /* by variable: what it is in this step; NULL: itself */
    VEC(LaneValue) values;
    VEC(KeptLoad) kept;
    bool is_late;        /* numbers are read when they are used, ... */
    VEC(LaneValue) late; /* ... which these are already */
    int n_put; /* vectors of bytes that wait to be stored together: values, still of i32, and places
                */
    const char *put[LANES_PUT], *put_at[LANES_PUT];
} Lanes;

/* A sum of a few products of narrow types: acc += sum of rows[i] * columns[i], in the lanes of
 * columns. */
typedef struct LaneDot {
    const Stmt *store;    /* the statement inside */
    int var;              /* of the loop over the few */
    int count;            /* of the few */
    const char *function; /* of lanes.def */
    bool spread;          /* it wants rows in all lanes, not in a word */
    DType bytes;          /* of rows, as they lie in memory */
    const Expr *rows;     /* the load of an element that is the same for all lanes */
    const Expr *columns;  /* ... of one that is so many apart from lane to lane */
    const Expr *shift;    /* columns are parts of bytes, so many bits up; NULL: whole ones */
    int mask;             /* ... and these of their bits */
    bool each;            /* the rows differ from lane to lane; then they are not `rows`, but ... */
    const Expr *row[4];   /* ... for each of the few, what it is, of i32: a byte of each lane,
                             0, or a choice by what all lanes share */
    const Expr *to;       /* or a table says where the rows lie behind the place that they have at
                             its zeros: the load of that; NULL: none does */
    const Stmt *shorts;   /* the loops of role short around, whose sums are added in 16 bits, */
    int n_shorts;         /* ... so many of them */
} LaneDot;

/* Types whose lanes can lie in memory. */
bool is_lane_type(DType dt);
/* Does the index grow by `step` with the variable? */
bool lanes_apart(const Expr *index, int var, int64_t step);
/* The load of elements of `dt` that a cast widens; NULL: none. */
const Expr *widened_load(const Expr *e, DType dt);
/* Can `e`, prepared, be computed in lanes of the loop over `var`? */
bool lanes_can(Printer *p, const Expr *e, int var);
/* Bytes of the widest type that is computed in lanes, `widest` at least. */
int lanes_widest(const Printer *p, const Expr *e, int var, int widest);
/* Reads the only statement of a vector loop over `var` as such a sum. */
bool lanes_read_dot(Printer *p, const Stmt *s, int var, LaneDot *dot);

/* The name of the vector type; its typedef is printed once. */
const char *lane_type(Printer *p, DType dt, int width);
/* Begins a statement with this value. */
void lanes_begin(Lanes *l, const Expr *e);
/* The lanes of a buffer from the index on, to be read or written. */
const char *lanes_at(Lanes *l, int buffer, const Expr *index);
/* The function that stores the first lanes of a vector. */
const char *put_first_function(Printer *p, DType dt, int width);
/* Are some lanes not in the buffer? lanes_at reads such, ... */
bool lanes_missing(const Lanes *l, int buffer);
/* ... and this writes them. */
void lanes_put_first(Lanes *l, int buffer, const Expr *index, const char *value);
/* The value; all its lanes, if `spread`, even if they are the same. */
const char *lanes_text(Lanes *l, const Expr *e, bool spread);
/* The same, as a constant. */
const char *lanes_named(Lanes *l, const Expr *e);
/* Loads a vector now, for all steps in which `load` begins there: as it is, or the columns of a
 * dot. */
void lanes_keep(Lanes *l, const Expr *load);
/* The same for the dot's columns as they are multiplied: of parts of bytes, decoded. */
void lanes_keep_columns(Lanes *l, const LaneDot *dot);
/* Is `value` one of bytes that are encoded, so that lanes_put can store it? */
bool lanes_can_put(const Lanes *l, const Expr *value);
/* Stores 16 bytes of the buffer from the index on, at the latest with those of the third call after
 * this one: LANES_PUT vectors are narrowed, and looked up in a table, at once. */
void lanes_put(Lanes *l, int buffer, const Expr *index, const Expr *value);
/* A dot as it is in an iteration of the loops of role short around it. */
LaneDot lanes_dot_of(Lanes *l, const LaneDot *dot, int step);
/* The dot's sums of 16 bits, two in each lane, added to `sum` (NULL: there is none). */
const char *lanes_short_text(Lanes *l, const LaneDot *dot, const char *sum);
/* The sum after the products. */
const char *lanes_dot_text(Lanes *l, const LaneDot *dot, const char *acc);
/* The columns of a dot, as words, and the word of its rows. */
const char *lanes_columns_text(Lanes *l, const LaneDot *dot);
const char *lanes_row_text(Lanes *l, const LaneDot *dot);
/* Can its function add what rows that differ from half to half are multiplied with? */
bool lanes_dot_pairs(const LaneDot *dot);

#endif
