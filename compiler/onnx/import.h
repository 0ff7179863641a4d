/* The ONNX importer: one function per ONNX operator, building core operators of ir/graph.h.
 *
 * ops.def lists every operator with the opset version from which a function serves it;
 * elementwise.def those that a formula says whole. Nothing behind the importer ever sees an ONNX
 * operator.
 *
 * An import function gets a Node: its inputs as values (NULL where an optional input is left out),
 * its attributes through attr_*, and sets n->out[i] for every output that is wanted. What it cannot
 * do it reports with unsupported() or invalid() and returns; the walk goes on with the next node,
 * so that one run names all unsupported operators of a model. Nodes that need what could not be
 * computed are passed over in silence.
 *
 * Shape-like inputs (the shape of Reshape, the axes of Squeeze ...) may be run-time values where
 * the model declares the shape of the result: a function asks node_ints first, then
 * node_declared_shape, and only then gives up with E3004 (node_need_ints words it).
 */
#ifndef COMPILER_ONNX_IMPORT_H
#define COMPILER_ONNX_IMPORT_H

#include "compiler/onnx/reader.h"
#include "ir/graph.h"

/* A value of the ONNX world: a tensor, a tensor of strings (text.h), a sequence or optional whose
 * length is known when compiling, a map: two tensors of one extent, its keys and its values, or a
 * sequence that a loop fills, an item in each iteration. */
typedef struct Entity {
    enum {
        ENTITY_tensor,
        ENTITY_text,
        ENTITY_sequence,
        ENTITY_optional,
        ENTITY_map,
        ENTITY_filled
    } kind;
    Value *tensor; /* tensor; text: its bytes, u8 with one dimension more; filled: after the loop,
                      the items stacked */
    int n; /* sequence: items; optional: 0 (empty) or 1; map: 2; filled: 1 if this iteration added
              one, else 0 */
    struct Entity **items;
    struct Entity *begun; /* filled: as the iteration got it; NULL: this is that */
    DType dt;             /* sequence, optional, filled: element type; text: DT_str */
    Value *input; /* tensor: the input of the model that it is, as callers give it; NULL: none */
} Entity;

/* Says what symbolic dimensions are: --dim NAME=VALUE, or NAME=LOW..VALUE for one that varies from
 * run to run; name "*" is every one that remains. */
typedef struct DimOption {
    const char *name;
    int64_t low, value;
    bool used;
} DimOption;

/* What is said of an input when compiling, by its name; see import_io.c. */
typedef struct InputOption {
    const char *name, *value;
    bool used; /* set if there is such an input */
} InputOption;

typedef struct ImportOptions {
    DimOption *dims; /* `used` is set for those that named a dimension */
    int n_dims;
    DimOption
        *string_bytes; /* --string-bytes: of the strings of an input; name "*": of all others */
    int n_string_bytes;
    /* --state: inputs that stay inputs although the model has an initializer of the name, which is
     * then in Value.data; and the outputs, of the same numbers, that they are in the next call */
    const char **states, **kept;
    int n_states;
    InputOption *items; /* --items: of a sequence, map or optional; name "*": of all others */
    int n_items;
    InputOption *fixed; /* --fix: the values of an input that becomes a constant */
    int n_fixed;
    bool image_decoder; /* --image-decoder: there is one that generated code may use */
    bool device;        /* thousands of elements are computed side by side, and a running sum takes
                           longer than them all */
} ImportOptions;

#define DEFAULT_STRING_BYTES 64 /* that the strings of an input may have */
#define MAX_STRING_BYTES     65536

typedef struct Import Import;
typedef struct Scope Scope;             /* names of one graph or function body; see import_impl.h */
typedef struct Elementwise Elementwise; /* a row of elementwise.def */

/* Tensors of ONNX have at most this rank, so that an operator's coordinates (its output's and those
 * that it reduces over) stay within MAX_RANK. */
#define MAX_TENSOR_RANK 8
/* n->out and n->out_entity may be written up to here, wanted or not. */
#define MAX_SET_OUTPUTS 16

typedef struct Node {
    Import *im;
    Graph *g; /* where to build */
    Exprs *x; /* g->x */
    const Onnx__NodeProto *proto;
    const char *op, *domain; /* op_type; domain "" for ai.onnx */
    int version;             /* opset version of the domain */
    int n_in, n_out;         /* as in the node; trailing optional ones may be missing */
    Value **in;              /* tensors of numbers; NULL: absent (or something else: see entity) */
    Entity **entity;         /* inputs as entities; NULL: absent */
    Value **out;             /* to be set by the function (at least MAX_SET_OUTPUTS places) */
    Entity **out_entity;     /* or this, for a sequence or optional */
    Scope *scope;
    const char *label;      /* "node 'name' (Op)", as messages begin */
    const char *src;        /* "Op(name)", as reports say where an operator came from */
    const Elementwise *row; /* the operator's row in elementwise.def, or NULL */
    bool varying;           /* its function serves dimensions that vary (ir/dim.h) */
    bool failed;            /* reported or passed over: outputs need not be set */
} Node;

typedef void ImportFn(Node *n);

/* Checks and imports a model that was read. NULL after diagnostics. */
Graph *onnx_import(Arena *arena, Exprs *x, Diag *diag, const OnnxModel *model,
                   const ImportOptions *options);
/* True if some import function serves this operator ("" is ai.onnx) in this opset version. */
bool onnx_supports(const char *domain, const char *name, int version);
/* A row of the tables: an operator, and from which opset version a function serves it. */
typedef struct OnnxOperator {
    const char *domain, *name; /* domain "" is ai.onnx */
    int since;
    bool text;   /* the row is for nodes that are given strings */
    bool varies; /* its function serves dimensions that vary */
} OnnxOperator;
/* Row number `row` of all tables, in their order; false if there are not so many. */
bool onnx_operator(int row, OnnxOperator *result);

/* --- for import functions --------------------------------------------------------------------- */

/* Attributes: the value, or `fallback` where it is absent. A wrong kind is reported (E2004).
 * References to attributes of an enclosing function are followed. */
bool attr_has(const Node *n, const char *name);
int64_t attr_int(Node *n, const char *name, int64_t fallback);
double attr_float(Node *n, const char *name, double fallback);
const char *attr_str(Node *n, const char *name, const char *fallback);
/* The attribute's place in `names`, words with a blank between them, or `fallback` where it is
 * absent; -1 after a report (E2004) where it is none of them. */
int attr_choice(Node *n, const char *name, int fallback, const char *names);
const int64_t *attr_ints(Node *n, const char *name, int *count); /* NULL if absent */
const float *attr_floats(Node *n, const char *name, int *count); /* NULL if absent */
const char *const *attr_strs(Node *n, const char *name, int *count);
Value *attr_tensor(Node *n, const char *name); /* dense or sparse, as a constant; NULL if absent */
const Onnx__GraphProto *attr_graph(Node *n, const char *name);
const Onnx__TypeProto *attr_type(Node *n, const char *name);
/* The element type that an ONNX code means; reports E3003/E2004 and returns DT_none if it has none
 * that tensors can have here (strings, complex numbers). */
DType node_dtype(Node *n, int64_t onnx);

/* May generated code decode images? */
bool node_decodes_images(const Node *n);
/* Input i, or NULL if the node has fewer or leaves it out. */
Value *node_in(const Node *n, int i);
/* Input i; reports E2007 and returns NULL if it is absent. */
Value *node_need(Node *n, int i);
/* True if output i is asked for. */
bool node_wants(const Node *n, int i);
/* Is it for a device (ImportOptions)? */
bool node_on_device(const Node *n);
/* Is output i an output of the model that is kept for the next call (--state), and nobody's else?
 */
bool node_keeps(const Node *n, int i);
/* The shape that the model declares for output i (value_info or graph output), if it is fixed. */
bool node_declared_shape(const Node *n, int i, int *rank, int64_t *shape);
/* What the model declares for dimension `axis` of output i. If it is not an extent, false, and
 * *name is what --dim calls the dimension: as the model does, or "OUTPUT.AXIS". */
bool node_declared_extent(const Node *n, int i, int axis, int64_t *extent, const char **name);
/* The extent of a dimension that depends on data, `count` (an integer, one element): its value
 * where that is known by now, else a dimension that varies, with what --dim says of `name` as its
 * range, or up to `most` (a dimension; -1: nothing is known). What a run computes is brought into
 * the range, and is a fault (graph_note_fault) if it was not there; sure: it is never above `most`,
 * nor below 0. False after a report. */
bool node_counted_extent(Node *n, Value *count, int64_t most, bool sure, const char *name,
                         int64_t *extent);
/* Notes as a fault that a count (an integer, one element) is not in [low, high], which may be
 * dimensions. */
void node_check_count(Node *n, Value *count, int64_t low, int64_t high);
/* The range that --dim gives a dimension; false if it says nothing of it. */
bool node_range(const Node *n, const char *name, int64_t *low, int64_t *high);
/* The largest extent that a dimension that depends on data may have: what --dim says, else `most`.
 */
int64_t node_most_extent(const Node *n, const char *name, int64_t most);
/* As node_counted_extent, but what the model declares for dimension `axis` of `output` comes first,
 * and exactly so many elements are given: where a run finds fewer (`sure`), the others mean
 * nothing. */
bool node_chosen_extent(Node *n, Value *count, int output, int axis, int64_t most, bool sure,
                        int64_t *extent);
/* The extents of output 0 from `counts`, a vector of integers with one for each dimension: what can
 * be said of them by now, what the model declares, or dimensions that vary, as above. most: their
 * bounds; NULL: none are known. False after a report, of all that --dim should say. */
bool node_counted_shape(Node *n, Value *counts, const int64_t *most, int *rank, int64_t *shape);
/* Axis in [0, rank) from one in [-rank, rank); reports E2004 and returns -1 otherwise. */
int node_axis(Node *n, int64_t axis, int rank);
/* The integers of input i if it is constant; NULL otherwise (also when absent). For a function that
 * serves dimensions that vary, they may be such. */
const int64_t *node_ints(const Node *n, int i, int *count);
/* The same; NULL also where one of them is an extent that varies. */
const int64_t *node_fixed_ints(const Node *n, int i, int *count);
/* The same, but reports E3004 ("... must be constant") if the input is there and not constant. */
const int64_t *node_need_ints(Node *n, int i, const char *what, int *count);
/* " (OPTIONS would make it constant)": of a value that is computed of few small inputs or extents what
 * says these; else "". */
const char *node_remedy(const Node *n, const Value *v);

/* False after a report if a shape has negative or absurd dimensions or too many of them. */
bool node_shape_ok(Node *n, int rank, const int64_t *shape);
/* False after a report if a result of this shape may have elements, but what each is read from
 * never has any. Where it has none in some runs, those with elements in the result end with a
 * status. */
bool node_source_ok(Node *n, const Value *from, int rank, const int64_t *shape);

/* Reports E3002 (this form is not supported) / a model error, naming the node. */
void unsupported(Node *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
void invalid(Node *n, ErrCode code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Imports a sub-graph (If, Loop, Scan, SequenceMap bodies) into graph `g`; names of the enclosing
 * scopes are visible. inputs: one entity per sub-graph input; outputs receives one per sub-graph
 * output, NULL where it is not known. False after diagnostics. When `g` is a loop body, outer
 * values that it uses are captured: they become further inputs of `g`, and *captured lists the
 * outer values in that order (give them to build_loop after the states). Pass captured == NULL when
 * `g` is the enclosing graph itself. */
typedef VEC(Value *) ValueVec;
bool import_subgraph(Node *n, const Onnx__GraphProto *proto, Graph *g, Entity *const *inputs,
                     Entity **outputs, ValueVec *captured);
Entity *entity_tensor(Import *im, Value *v);
/* A tensor of strings from its bytes. */
Entity *entity_strings(Import *im, Value *bytes);

/* An extent as a number of type `dt`. */
static inline const Expr *extent_as(Exprs *x, DType dt, int64_t extent) {
    return dim_varies(extent) ? ex_int(x, dt, extent) : ex_num(x, dt, (double)extent);
}

/* As messages show it. */
static inline const char *shape_of(const Node *n, const Value *v) {
    return shape_text(n->g->arena, v->rank, v->dims);
}

/* True if the tensor can have just one element. */
static inline bool value_single(const Node *n, const Value *v) {
    return dim_can_meet(n->x, dim_product(n->x, v->rank, v->dims), 1);
}

/* The formula of log(1 + exp(v)), which does not overflow. v: a name, or in parentheses. */
#define SOFTPLUS(v) "(max(" v ", 0) + log(1 + exp(-abs(" v "))))"

/* Elementwise formula of this node's inputs as a, b, c ... with broadcasting (see g_formula),
 * floats narrower than f32 computed in f32. */
Value *node_formula(Node *n, const char *formula, int count, Value *const *v);

#define OP(domain, name, since, fn)       ImportFn fn;
#define DYN(domain, name, since, fn)      ImportFn fn;
#define TEXT(domain, name, since, fn)     ImportFn fn;
#define DYN_TEXT(domain, name, since, fn) ImportFn fn;
#include "compiler/onnx/ops.def"

#endif
