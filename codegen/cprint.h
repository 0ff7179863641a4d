/* The shared printer of kernels in C-like languages.
 *
 * An expression is a graph with shared parts, and printing it as a tree could take exponential
 * room. So every part that a statement uses more than once, and that it surely evaluates, becomes a
 * constant before it: `const float v3 = ...;`. Parts under a guard (the arms of select, the right
 * side of and, or) may not be evaluated before the guard: they are printed inline while they are
 * small, else as an if statement that sets a variable, with constants of its own inside. Long lines
 * are broken the same way.
 *
 * Integer arithmetic whose bounds are known is printed plainly; what may overflow goes through
 * unsigned types, because overflow of signed types is undefined in C.
 */
#ifndef CODEGEN_CPRINT_H
#define CODEGEN_CPRINT_H

#include "codegen/dialect.h"
#include "codegen/names.h"

/* What a translation unit turned out to need. */
enum {
    NEEDS_math = 1,
    NEEDS_bool = 2,
    NEEDS_i64 = 4,
    NEEDS_f64 = 8,
    NEEDS_8bit = 16,
    NEEDS_16bit = 32,
    NEEDS_unroll = 64,
    NEEDS_i16 = 128,
    NEEDS_prefetch = 256,
    NEEDS_opaque = 512,
    NEEDS_tiles = 1024,
    NEEDS_kernel = 2048,
    NEEDS_stay = 4096,
    NEEDS_rolled = 8192,
    NEEDS_mixed = 16384,
    NEEDS_late = 32768,
    NEEDS_index = 65536,
    NEEDS_lanes = 131072,
    NEEDS_fresh = 262144
};

#define LANE_WORDS 3 /* of a bit for each row of lanes.def */

/* Text that several kernels share: which helper functions they use, which names are taken. */
typedef struct Unit {
    Arena *arena;
    const Dialect *dialect;
    Names names;                    /* file scope */
    unsigned needs;                 /* NEEDS_* */
    StrMap helpers;                 /* those used: name -> row of helpers.def */
    int vector_bytes;               /* loops of role vector become vector types; 0: they do not */
    bool inlines;                   /* short helpers are inlined by force */
    bool whole_vectors;             /* rather whole ones than narrower ones at the end of a row */
    bool pairs_rows;                /* two rows' last half vectors as a whole one */
    uint8_t vectors[DT_count];      /* which vector types are used: bit i: 4 << i lanes */
    uint64_t lane_rows[LANE_WORDS]; /* ... which rows of lanes.def */
    uint8_t keeps;                  /* vectors of 16, 32, 64 bytes are kept in registers, ... */
    uint8_t holds;                  /* ... several at once, between iterations */
    uint8_t *lane_helpers;          /* ... and which on vectors: bits 4, 8, 16: of so many lanes */
} Unit;

void unit_init(Unit *unit, Arena *arena, const Dialect *dialect);
/* Notes the use of a helper and of those it calls; returns its name. */
const char *unit_helper(Unit *unit, const char *name);
/* Prints the helpers that `text` uses, callees first. (Not all that were noted: printing an
 * expression may be tried in two ways.) */
void unit_print_helpers(Unit *unit, const char *text, Text *out);
/* Notes the use of helper mlcc_<name>_f32 on vectors; false if there is none. */
bool unit_lane_helper(Unit *unit, const char *name, int lanes);
/* Prints those that were noted, callees first. `begin`: what stands before their types. */
void print_lane_helpers(const Unit *unit, const char *begin, Text *out);

/* One value of a statement at work; see cexpr.c. */
typedef struct Node {
    const Expr *e;
    uint32_t stamp;   /* the statement that the fields up to `name` belong to */
    int uses;         /* how often that statement mentions it */
    int local;        /* its place in the statement's list */
    const char *name; /* the constant or variable that holds it, or NULL */
    bool asked;       /* loads_inside has been, ... */
    bool inside;      /* ... and said this */
    bool ranged;      /* lo, hi are set ... */
    bool bounded;     /* ... and known: lo <= value <= hi */
    int64_t lo, hi;
    int extent; /* 1: is_extent, -1: it is not, 0: not asked for */
    int place;  /* the same of is_part, what places consist of */
} Node;

typedef struct TileNest TileNest;
typedef struct Later Later;

/* Vectors that a loop computes functions of at once: registers hold what so many take. */
#define TOGETHER 3

typedef struct Printer {
    Unit *unit;
    const Dialect *d;
    Exprs *x;
    Arena *scratch; /* given back after the kernel */
    const Kernel *k;
    Names names;                          /* of the kernel */
    const char **buffer, **var, **scalar; /* names */
    int64_t *trips;         /* of the loops around the launches, by depth: at most so many */
    int64_t *extent;        /* upper bounds of the variables, -1: unknown */
    const Node **var_value; /* let variables: what they hold */
    bool *var_used, *buffer_used;
    bool *unrolled; /* variable i is one of a loop that compilers unroll */
    bool in_rows;   /* what is printed is one of the rows of a tile, or in a loop over them */
    bool *compared; /* buffer i keeps the largest or smallest */
    bool *aligned;  /* parameter i begins at a multiple of what is read at once; NULL: nothing is */
    bool *declared; /* buffer i: its alloc waits for the store that sets it */
    /* cvector.c. held[i] > 0: buffer i is an array in registers, kept in vectors: rows of so many
     * elements; the vector that begins at an element has the name held_name[i][element]. */
    int64_t *held;
    const char ***held_name;
    const char **pair;  /* by even row: what holds its last lanes and the next one's; or NULL */
    bool fills;         /* the last vector of a row may have lanes beyond it: all is f32 */
    bool has_tile;      /* the kernel has one, which GCC must not order anew: nothing is mixed */
    bool mixed;         /* it computes functions of several vectors at once */
    bool repeats;       /* an iteration of its loop over the depth has several steps */
    const Stmt *rolled; /* the nest in the innermost loop that is not to be unrolled, or NULL */
    TileNest *tiles;    /* tiles.c: the product that is one of a matrix unit; or NULL */
    Later *later;       /* later.c: what is done with sums a tile later; or NULL */
    Text out;
    int indent;
    int n_values; /* constants so far */
    /* the map of nodes, and the statement at work */
    Node **slots;
    uint32_t n_nodes, cap;
    uint32_t stamp;
    VEC(Node *) local;
    uint64_t *must; /* for each local node the set of those it surely evaluates */
    int words;
    VEC(Node *) named;  /* nodes with names, innermost scope last */
    bool inline_only;   /* under a guard: nothing may be printed before the statement */
    bool in_place;      /* a place that is printed need not have the type of values */
    const Stmt *shared; /* a loop of which the function does the part of a thread; or NULL */
    int unit_of_part;   /* what parts are multiples of */
    const char *worker, *workers; /* names of the parameters that say which */
} Printer;

void printer_init(Printer *p, Unit *unit, const Program *program, Arena *scratch, const Kernel *k);
/* The function is to do a part of this loop of the kernel's body only: of its iterations those that
 * fall to thread number `worker` of `workers`, two parameters (mlcc_part of runtime/team.h). */
void printer_share(Printer *p, const Stmt *loop, int unit);
/* Prints a list of statements. */
void print_statements(Printer *p, const Stmt *s);
void print_loop(Printer *p, const Stmt *s);
/* What is read behind this is read there: GCC would do so earlier, and spill vectors for it. */
void print_stay(Printer *p);
/* Prints the statements of the kernel, indented by one step, into p->out. */
void print_body(Printer *p);

/* Statements that quiet the compiler about parameters that the printed body does not mention. */
void print_unused(const Printer *p, Text *out);
/* The parameter list of the kernel in C-like form, one parameter an entry. `restrict_word[i]`: what
 * stands between '*' and the name of parameter i. */
void kernel_parameters(Printer *p, const char *const *restrict_word, const char *scalar_type,
                       Text *out, int indent);
/* `text` as a comment of its own, in lines. */
void print_comment(const char *text, Text *out);
/* A comment with the ONNX nodes that the kernel computes, and the shapes of its parameters. */
void kernel_comment(const Kernel *k, Arena *arena, Text *out);
/* Writes the pieces separated by ", ", and breaks lines before column 98; `column`: where the text
 * stands, `indent`: where new lines begin. */
void text_list(Text *out, int n, const char *const *piece, int column, int indent);

/* --- cvector.c -------------------------------------------------------------------------------- */

/* Finds the arrays that are kept in vectors. */
void hold_arrays(Printer *p);
/* Prints the loop as vectors, if it can be; else false. */
bool print_vectors(Printer *p, const Stmt *s);
/* Before a loop: are compilers not to unroll it, since it is over steps of a product and alone inside
 * of another, of which this was asked, too? */
bool is_rolled(Printer *p, const Stmt *loop);
/* Says so, if they are not. */
void print_rolled(Printer *p, const Stmt *loop);
/* Has rows to which the loop adds products, and of which half a vector is left over, end in vectors
 * of two rows from here on, until end_pairs; false if it is no such loop. */
bool begin_pairs(Printer *p, const Stmt *loop);
void end_pairs(Printer *p, const Stmt *loop);
typedef enum Strips {
    STRIPS_none,  /* nothing was printed */
    STRIPS_begun, /* what is left over is to be done one by one; then end_strips */
    STRIPS_all,   /* that was printed, too */
} Strips;
/* Opens a scope in which the loop's variable exists and prints a loop over strips of lanes, if its
 * statements handle what compilers make poor vectors of. */
Strips print_strips(Printer *p, const Stmt *s, const char *first, const char *last);
void end_strips(Printer *p);
/* Declares the vectors of a buffer that is held; else false. */
bool print_held_alloc(Printer *p, int buffer);
/* Opens a scope in which the held arrays that the loop `s` reads are arrays in memory; false if it
 * reads none, or writes some. unspill_held closes it. */
bool spill_held(Printer *p, const Stmt *s);
void unspill_held(Printer *p);
/* Copies the vectors of a buffer that is held to an array. */
void store_held(Printer *p, int buffer, const char *array);
/* Notes the use of a function on lanes, of lanes.def or helpers.def; returns its name. */
const char *unit_lane_function(Unit *unit, const char *name, int lanes);
/* Notes the vector types that a text mentions. */
void unit_note_vectors(Unit *unit, const char *text);
/* The vector types and functions that were used. */
void print_vector_types(const Unit *unit, Text *out);

/* --- tiles.c ---------------------------------------------------------------------------------- */

/* Is the loop a product of tiles on a matrix unit? Then its sums stay in an array. */
bool find_tiles(Printer *p, const Stmt *s);
/* The array's declaration; false if the buffer is none of sums. */
bool print_sums_alloc(Printer *p, int buffer);
/* Around all statements of a kernel: nothing, if it has no such product. */
void print_tiles_begin(Printer *p);
void print_tiles_end(Printer *p);
/* If the loop only makes the sums 0, and the product comes next: true, and begin_tiles will do it.
 */
bool take_clearing(Printer *p, const Stmt *s);
/* Clears, or loads, the sums before `s`, if it is the product's outermost loop that does nothing
 * else; end_tiles stores them. print_tiles prints the product itself, if `s` is it. */
bool begin_tiles(Printer *p, const Stmt *s);
bool print_tiles(Printer *p, const Stmt *s);
void end_tiles(Printer *p);
/* What the printed text is made of. */
void print_tile_functions(const Unit *unit, Text *out);

/* --- later.c ---------------------------------------------------------------------------------- */

/* Is the last statement around a product a loop over parts of its sums, which are in vectors? `unit`:
 * the product, of a matrix unit, and the buffer of its sums; NULL: there is none. Then they are
 * finished a tile later. Not if there is but one tile. */
bool find_later(Printer *p, const Stmt *unit, int unit_sums);
/* How many parts a tile has; 0: nothing is done later. */
int64_t later_parts(const Printer *p);
/* Finishes up to `count` parts of the tile before; 0: all that are left. */
void print_parts(Printer *p, int64_t count);
/* If the statement is that loop: leaves it for the next tile. */
bool print_later(Printer *p, const Stmt *s);
/* Declares the array of sums that a matrix unit works in; false if there are not two of them. */
bool print_later_alloc(Printer *p, int buffer);
/* Prints the loop of a product of vectors with parts in between; false if it is not that one. */
bool print_groups(Printer *p, const Stmt *s);
/* Where the loop's iterations begin and end, if a group of them is being printed; else as they were.
 */
void group_bounds(const Printer *p, const Stmt *s, const char **first, const char **last);
/* Around all statements of a kernel: nothing, if nothing is done later. */
void print_later_begin(Printer *p);
void print_later_end(Printer *p);

/* --- warp_tiles.c ----------------------------------------------------------------------------- */

/* Prints the loop as products of tiles by the warps of a device, if it is such; else false. */
bool print_warp_tile(Printer *p, const Stmt *s);

/* --- cexpr.c ---------------------------------------------------------------------------------- */

void print_line(Printer *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Loads with one flat index, variables of known value replaced, simplified. */
const Expr *prepare(Printer *p, const Expr *e);
/* The flat index of a store or prefetch in its buffer. */
const Expr *place_of(Printer *p, const Stmt *s);
/* Begins a statement that evaluates these expressions, all prepared: prints what they share. */
void begin_statement(Printer *p, int n, const Expr *const *roots);
/* Gives names to what is computed from a run's extents alone, ahead of all statements: compilers do
 * not move loads out of loops that store. */
void name_extents(Printer *p);
/* Forgets the constants of the statement. `mark`: p->named.n before it. */
void end_statement(Printer *p, int mark);
void end_scope(Printer *p, int mark);
/* The text of a root; may print lines before. */
const char *print_root(Printer *p, const Expr *e);
/* The text of `e`, a root of type dt, as it is stored to memory of that type. */
const char *print_stored(Printer *p, DType dt, const Expr *e);
/* The place of an element: "x[i * 4 + j]", or "x" for a register. */
const char *print_place(Printer *p, int buffer, const Expr *index);
const char *type_of(Printer *p, DType dt);
/* Of loop variables. */
const char *index_type(const Printer *p);
/* The text of a root that is an index or a bound. */
const char *print_bound(Printer *p, const Expr *e);
/* "&x[i * 4 + j]" */
const char *print_address(Printer *p, int buffer, const Expr *index);
const char *mem_type(Unit *unit, DType dt);
/* True if the buffer's elements are held in their register type. */
bool held_wide(const Printer *p, const Buffer *b);
bool is_scalar_buffer(const Buffer *b);
/* Is it the kernel's own array of numbers of one or two bytes, held as in memory because several of
 * them are read and written at once? */
bool is_narrow_array(const Printer *p, const Buffer *b);
/* `raw`, as memory holds it, as a value of its register type. */
const char *print_loaded(Printer *p, DType dt, const char *raw);
/* The type that the elements of an array in registers have: an unsigned one for integers where GCC
 * makes vectors. GCC 12 sums arrays of signed ones wrongly at -O3 if what is read afterwards is
 * cast to unsigned (its PR 107212); of unsigned ones it compares what was cast as unsigned, so
 * arrays of the largest or smallest stay signed. */
DType held_type(const Printer *p, int buffer);
int64_t buffer_elements(const Buffer *b);
Node *node_of(Printer *p, const Expr *e);
/* A literal of a type. */
const char *print_number(Unit *unit, DType dt, Scalar value);

#endif
