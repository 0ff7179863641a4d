/* Kernels: loop nests over buffers, the level that all targets share.
 *
 * A program is a list of kernels and the host steps that launch them. Parameter buffers come first
 * in Kernel.buffers, then those a kernel allots itself (registers, shared memory). Loads and stores
 * have one index per dimension; printers flatten them row-major.
 */
#ifndef IR_KERNEL_H
#define IR_KERNEL_H

#include "ir/graph.h"

typedef enum Space {
    SPACE_param, /* global memory given by the caller */
    SPACE_reg,   /* private: a scalar or a small array; loops around it are unrolled by the compiler
                  */
    SPACE_shared /* shared by the threads of a block */
} Space;

typedef struct Buffer {
    const char *name; /* C identifier, unique in the kernel */
    Space space;
    DType dt;
    int rank;
    const int64_t *shape;
    bool written; /* a parameter that the kernel stores to */
    bool partial; /* an input of which a run may give less: what lies behind is not to be read */
    double low, high; /* no element lies outside of them, and none is NaN; infinite: it is not known
                       */
} Buffer;

#define KEPT_VECTORS 2 /* see ROLE_repeat */

typedef enum Role {
    ROLE_serial,
    ROLE_parallel, /* iterations are independent and may run on several CPU threads; of such loops
                      one after the other in a kernel each stores elements of its own */
    ROLE_vector,   /* innermost, independent, contiguous: to be vectorised */
    ROLE_unroll,
    ROLE_tile,    /* of a reduction, around rows and columns of sums: a tile of a matrix unit, of
                     which each iteration is a word, or of a device's warps, a step */
    ROLE_short,   /* of a reduction, around rows and columns of sums of products of bytes, unsigned
                     with signed, by fours: of the first two of the four, and of the last two, sums
                     over all loops of the role fit into 16 bits */
    ROLE_moved,   /* of a reduction, inside of a vector of columns: four products of bytes, whose
                     rows lie where a table of bytes says, in pairs side by side within a window
                     (target_window) of what is there, and have sums of 16 bits in pairs; inside of
                     loops of role short anywhere within BYTES_WINDOW bytes */
    ROLE_repeat,  /* of a reduction, around rows and columns of sums: a few iterations, one written
                     after the other, each with columns of its own in registers: up to
                     KEPT_VECTORS, the rest is left to the C compiler */
    ROLE_later,   /* over parts of the sums of a tile, behind their reduction: each may be finished
                     while the sums of the next tile are added up (codegen/later.c) */
    ROLE_block_x, /* GPU grid and block dimensions; extents are constants */
    ROLE_block_y,
    ROLE_block_z,
    ROLE_thread_x,
    ROLE_thread_y,
    ROLE_thread_z,
    ROLE_count
} Role;

const char *role_name(Role role); /* "serial", ..., "block.x", ... */

typedef enum StmtKind {
    ST_for,
    ST_if,
    ST_store,
    ST_let,
    ST_alloc,
    ST_barrier,
    ST_prefetch /* a hint: what lies there is read soon; it may lie outside of the buffer */
} StmtKind;

typedef struct Stmt Stmt;
struct Stmt {
    StmtKind kind;
    Stmt *next;         /* the statement after it in its block */
    int var;            /* for, let */
    Role role;          /* for */
    const Expr *extent; /* for: 0 <= var < extent (i32) */
    const Expr *value;  /* let, store; if: the condition */
    int buffer;         /* store, alloc, prefetch */
    const Expr **index; /* store, prefetch: one per dimension */
    bool near;          /* prefetch: into the L1 cache, else into the L2 cache */
    bool global;        /* barrier: what was stored to parameters before is seen behind it, too */
    Stmt *body, *other; /* for, if; if: else branch */
};

typedef struct Var {
    const char *name; /* C identifier, unique in the kernel */
    DType dt;         /* i32 for loops */
    int64_t extent;   /* loops: an upper bound of the extent; -1 for lets */
} Var;

typedef struct Kernel {
    const char *name; /* C identifier, unique in the program */
    const char *src;  /* ONNX nodes it computes, for the comment */
    int n_params;     /* buffers[0..n_params) are parameters */
    VEC(Buffer *) buffers;
    VEC(Var) vars;
    int n_scalars; /* loop counters it reads: EX_ctr numbers 0..n_scalars-1 are parameters */
    Stmt *body;
    int64_t grid[3],
        block[3];         /* GPU: extents of the block and thread loops, 1 where there is none */
    const char *schedule; /* the steps applied, as text */
} Kernel;

/* What an argument of a launch is. */
typedef struct Place {
    enum { PLACE_none, PLACE_input, PLACE_output, PLACE_arena, PLACE_weights, PLACE_state } space;
    int index;      /* which input or output */
    int64_t offset; /* bytes in arena, weights or states */
    int64_t bytes;
} Place;

typedef struct Step {
    enum { STEP_launch, STEP_loop, STEP_end } kind;
    Kernel *kernel;    /* launch */
    Value **args;      /* launch: the value behind each parameter (placed by the memory plan).
                          end: a bool; where it is false the loop may be left.
                          loop: an i32, which counts what nobody reads more of in this run: `each`
                          iterations for one are enough. NULL: there is none */
    Place *places;     /* of each of args, filled by the memory plan */
    uint32_t in_place; /* launch: bit i set: the output may lie in argument i's memory, for every
                          element of it is read just before that element of the output is written */
    uint64_t key;      /* launch: of its operator (passes/schedules.h); 0: it has none */
    bool copy; /* launch: the last argument becomes what the first is; the memory plan leaves the
                  step out where both are one place */
    int64_t trips; /* loop; its counter is ctr <number of loops around> */
    int64_t each;
    bool apart; /* loop: no iteration needs another, there is no loop inside, and what one makes
                   for itself lies together: so several threads may each do some, with a block of
                   memory of their own in place of this one */
    int64_t own_offset, own_bytes; /* in the arena, filled by the memory plan */
} Step;

/* What is kept from one run for the next. */
typedef struct StatePlace {
    int64_t offset, bytes; /* in the block of states */
    int64_t initial;       /* where its first value is in the weights; -1: it is zeros */
} StatePlace;

typedef struct Program {
    Arena *arena;
    Exprs *x;
    Diag *diag;
    Graph *graph; /* the graph it was lowered from: inputs, outputs, names */
    VEC(Kernel *) kernels;
    VEC(Step) steps;
    int64_t arena_bytes; /* of the memory plan */
    int64_t weight_bytes;
    VEC(Value *) weights;       /* constants in the order of the weights block ... */
    VEC(int64_t) weight_offset; /* ... and where each begins */
    int64_t state_bytes;        /* of the block that keeps the graph's states between runs ... */
    VEC(StatePlace) states;     /* ... and each of them in it, in the graph's order */
} Program;

/* The value whose memory `v` lies in. */
Value *value_storage(Value *v);
/* How many args a step has. */
int step_n_args(const Step *s);

Program *program_new(Graph *g);
Kernel *kernel_new(Program *p, const char *name);
int kernel_buffer(Program *p, Kernel *k, const char *name, Space space, DType dt, int rank,
                  const int64_t *shape);
int kernel_var(Program *p, Kernel *k, const char *name, DType dt, int64_t extent);
Stmt *stmt_new(Program *p, StmtKind kind);
/* Appends `s` (and what follows it) to the list at *list. */
void stmt_append(Stmt **list, Stmt *s);
/* What no value of `e`, which loads the kernel's buffers, exceeds in magnitude, if none is NaN;
 * HUGE_VAL: it is not known. */
double kernel_largest(const Kernel *k, const Expr *e);
/* Holds it integers in a range that is known, as extents of a run are? */
static inline bool buffer_has_range(const Buffer *b) {
    return dt_is_int(b->dt) && b->low >= INT32_MIN && b->high <= INT32_MAX;
}
/* Bounds of an integer expression without variables, by the ranges of the buffers that it loads;
 * false: they are not known. */
bool kernel_bounds(const Kernel *k, Exprs *x, const Expr *e, int64_t *low, int64_t *high);

#endif
