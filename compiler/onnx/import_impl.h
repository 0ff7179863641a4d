/* What the importer's own files share: import.c (walk and scopes), import_check.c (what can be said
 * of a model before the walk), import_attr.c (what import functions are given). Import functions
 * see none of this. */
#ifndef COMPILER_ONNX_IMPORT_IMPL_H
#define COMPILER_ONNX_IMPORT_IMPL_H

#include "compiler/onnx/elementwise.h"
#include "compiler/onnx/import.h"

/* Bounds against models whose functions or sub-graphs unfold without end. */
#define MAX_CALL_DEPTH  128    /* scopes (functions, sub-graphs) around a node */
#define MAX_NODES       500000 /* nodes imported, all functions and sub-graphs unfolded */
#define MAX_WALK_ERRORS 100    /* messages after which the walk ends */

typedef struct OpRow {
    const char *domain, *name;
    int since;
    ImportFn *fn;
    const Elementwise *elementwise;
    bool varying;       /* a row of DYN */
    struct OpRow *next; /* other versions of the same operator */
} OpRow;

/* A model-local function. */
typedef struct Function {
    const Onnx__FunctionProto *proto;
    StrMap opsets; /* domain -> Opset, its own */
    bool checked;
} Function;

typedef struct Opset {
    int version;
} Opset;

/* What a name stands for; made into an entity when first used. */
typedef struct Binding {
    Entity *entity;
    const Onnx__TensorProto *tensor;
    const Onnx__SparseTensorProto *sparse;
} Binding;

typedef struct BoundAttr {
    const char *name;
    const Onnx__AttributeProto *attr; /* NULL: absent in the call */
} BoundAttr;

/* A function call that is being inlined. */
typedef struct Frame {
    struct Frame *outer;
    Function *function;
    const char *label; /* of the outermost calling node */
    int n_attrs;
    BoundAttr *attrs;
} Frame;

/* A node that takes a name as an input. */
typedef struct User {
    struct User *next;
    const Onnx__NodeProto *node;
} User;

struct Scope {
    Scope *outer; /* NULL: nothing further out is visible */
    Graph *g;
    Frame *frame;    /* NULL outside functions */
    StrMap names;    /* -> Binding */
    StrMap declared; /* -> Onnx__ValueInfoProto */
    size_t n_nodes;  /* of this graph or function */
    Onnx__NodeProto *const *nodes;
    StrMap users;       /* name -> User; filled when first asked for */
    ValueVec *captured; /* the body of a loop: outer values that it uses; else NULL */
    int depth;
};

typedef struct Symbol {
    const char *name;
    int64_t value;   /* -1: unresolved */
    int varies;      /* number of the symbol in ir/dim.h; -1: it does not */
    const char *map; /* the input whose entries it counts; NULL: none */
} Symbol;

struct Import {
    Arena *arena;
    Exprs *x;
    Diag *diag;
    const OnnxModel *model;
    const Onnx__ModelProto *proto;
    const ImportOptions *options;
    StrMap ops;       /* "domain:name" -> OpRow */
    StrMap text_ops;  /* the same for nodes that are given strings */
    StrMap opsets;    /* domain -> Opset */
    StrMap functions; /* "domain:name:overload" -> Function */
    StrMap symbols;   /* dimension names -> Symbol */
    VEC(Symbol *) symbol_list;
    Entity poison; /* stands for what could not be computed */
    Entity absent; /* an optional input of a function that the call leaves out */
    int n_nodes;
    int n_trials; /* bodies of loops that were imported on trial */
    bool stopped; /* a bound was passed: the walk ends */
};

static inline const char *pb_text(const char *text) {
    return text ? text : "";
}
/* "" for "ai.onnx". */
const char *plain_domain(const char *domain);

/* --- import_check.c --------------------------------------------------------------------------- */

/* Fills ops, opsets, functions; reports unsupported operators, missing opsets and recursion. False
 * if nothing can be walked. */
bool check_model(Import *im);
/* Gives every symbolic dimension of the inputs a value (--dim). False after reports. */
bool check_dims(Import *im);
/* True if the name is an initializer's. */
bool check_is_initializer(const StrMap *names, const char *name);
/* Rank and dimensions that a tensor type declares, -1 where not fixed (the known symbols are put
 * in). False if it has no shape, or one of too many dimensions. */
bool check_type_shape(const Import *im, const Onnx__TypeProto *type, int *rank, int64_t *shape);
/* The name that a type gives to one of its dimensions; "" if none. */
const char *check_dim_name(const Onnx__TypeProto *type, int axis);
/* What --dim says of a dimension of a result; NULL: nothing. */
const DimOption *check_dim_option(const Import *im, const char *name);
/* Type and shape of a graph input; DT_none after a report. */
DType check_input_type(Import *im, const Onnx__ValueInfoProto *info, int *rank, int64_t *shape);
/* The same for strings: the shape of their bytes. */
bool check_input_strings(Import *im, const Onnx__ValueInfoProto *info, int *rank, int64_t *shape);
/* Compares a tensor that the model gives with the type that it declares (NULL: none). */
void check_output(Import *im, const Onnx__TypeProto *declared, const Entity *e);
Function *check_function(const Import *im, const char *domain, const char *name,
                         const char *overload);
/* The operator's row for this version, or NULL. */
const OpRow *check_op_row(const StrMap *ops, const char *domain, const char *name, int version);
/* The row for a node that is given strings (text), or not. An operator that has only one row has
 * it for both; but what is a row for numbers does not serve strings. */
const OpRow *check_node_row(const Import *im, const char *domain, const char *name, int version,
                            bool text);
/* The opset version of a domain in a function (NULL: the model); 0 if it is not imported. */
int check_opset(const Import *im, const Function *function, const char *domain);
/* "node 'name' (Op)" */
const char *check_label(Arena *arena, const Onnx__NodeProto *node, size_t number);

/* --- import_io.c ------------------------------------------------------------------------------ */

/* The type whose dimensions an input's tensors have; NULL if it has no tensors, or --items says
 * their shapes. */
const Onnx__TypeProto *io_dims_type(Import *im, const Onnx__ValueInfoProto *info);
/* The dimension that says how many entries an input has, and how many --items allows, or -1. NULL
 * if the input is no map, or after a report. */
const char *io_map_entries(Import *im, const Onnx__ValueInfoProto *info, int64_t *most);
/* What dimensions without a name are called by, NAME.AXIS: the input, or NAME.item. */
const char *io_axis_name(Import *im, const Onnx__ValueInfoProto *info);
/* What an input of the model is, its tensors added to the graph's inputs. NULL after a report. */
Entity *io_input(Import *im, Graph *g, const Onnx__ValueInfoProto *info);
/* The inputs' tensors as the graph has them, when all dimensions are known. */
void io_from_memory(Import *im, Graph *g, Entity *e);
/* Is the input of this name what an output was in the call before, or the output such? */
bool io_is_state(const Import *im, const char *name);
bool io_is_kept(const Import *im, const char *name);
/* Reports options for inputs (--items, --fix) that the model does not have. */
void io_options_used(Import *im);
/* Adds the tensors of an output of the model to the graph's outputs. */
void io_output(Import *im, Graph *g, const Onnx__ValueInfoProto *info, const Entity *e);

/* --- import.c --------------------------------------------------------------------------------- */

/* The tensor under a name that is known by now; NULL if there is none (yet). */
const Value *scope_value(const Scope *s, const char *name);

/* --- import_attr.c ---------------------------------------------------------------------------- */

/* The attribute of a node under a name, references followed; NULL if absent. */
const Onnx__AttributeProto *attr_resolve(const Frame *frame, const Onnx__AttributeProto *attr);
/* The node's attribute of this name, references followed; NULL if absent. */
const Onnx__AttributeProto *attr_find(const Node *n, const char *name);
/* Constants from tensors of the model; NULL after a report. Strings are none of attr_const's. */
Entity *attr_entity(Import *im, Graph *g, const Onnx__TensorProto *tensor);
Value *attr_const(Import *im, Graph *g, const Onnx__TensorProto *tensor);
Value *attr_sparse_const(Import *im, Graph *g, const Onnx__SparseTensorProto *sparse);

#endif
