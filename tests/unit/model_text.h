/* For tests of the importer: ONNX models from a small text, written as the bytes of a real file.
 *
 *     ir 8  opset 17  opset ai.onnx.ml 3
 *     input x f32[2,N,?]   input m map(str,f32)   output y f32[2]   output z   value t i64[3]
 *     init w f32[2] = 1 2.5            sparse s f32[4] = 1:5 3:7
 *     y, z = Split(x, w) {axis=1 mode="up" scales=[1.0 2.0] perm=[1 0] body=graph{...} to=@attr}
 *     "label" y = some.domain:Op(x) {value=f32[2](1 2)}
 *     function some.domain:F(a, b) -> (c) <alpha, beta=1.0> { opset 17  c = Add(a, b) }
 *
 * Words are separated by blanks and commas; order is free, as far as ONNX lets it be. An empty name
 * is written _. */
#ifndef TESTS_MODEL_TEXT_H
#define TESTS_MODEL_TEXT_H

#include "compiler/onnx/import.h"
#include "ir/interp.h"
#include "tests/unit/onnx_writer.h"

#include <ctype.h>

typedef struct ModelText {
    Bench *b;
    const char *p;
    Text opsets, functions; /* fields of the model, met inside the graph's text */
    int64_t ir;
} ModelText;

static inline void skip_blanks(ModelText *m) {
    while (*m->p && (isspace((unsigned char)*m->p) || *m->p == ',')) m->p++;
}

static inline bool accept(ModelText *m, const char *word) {
    skip_blanks(m);
    size_t n = strlen(word);
    bool letters = isalnum((unsigned char)word[0]);
    if (strncmp(m->p, word, n) != 0 ||
        (letters && (isalnum((unsigned char)m->p[n]) || m->p[n] == '_' || m->p[n] == '.')))
        return false;
    m->p += n;
    return true;
}

static inline void want(ModelText *m, const char *word) {
    if (!accept(m, word)) fail_msg("the test's model: expected '%s' at '%.30s'", word, m->p);
}

/* Up to a blank or one of the signs of the syntax; "" for _. */
static inline const char *word(ModelText *m) {
    skip_blanks(m);
    if (*m->p == '"') {
        const char *end = strchr(m->p + 1, '"');
        const char *text = arena_strndup(&m->b->arena, m->p + 1, (size_t)(end - m->p - 1));
        m->p = end + 1;
        return text;
    }
    size_t n = strcspn(m->p, " \n\t,()[]{}<>=:@");
    const char *text = arena_strndup(&m->b->arena, m->p, n);
    m->p += n;
    return strcmp(text, "_") != 0 ? text : "";
}

static inline DType type_word(ModelText *m) {
    const char *name = word(m);
    DType dt = dt_parse(name, strlen(name));
    if (dt == DT_none) fail_msg("the test's model: '%s' is no type", name);
    return dt;
}

static inline Text read_type(ModelText *m) {
    Text type = text_new(&m->b->arena), tensor_type = text_new(&m->b->arena);
    if (accept(m, "seq") || accept(m, "opt")) {
        bool is_seq = m->p[-1] == 'q';
        want(m, "(");
        Text item = read_type(m);
        want(m, ")");
        put_message(&tensor_type, 1, &item);
        put_message(&type, is_seq ? 4 : 9, &tensor_type);
        return type;
    }
    if (accept(m, "map")) {
        want(m, "(");
        put_int(&tensor_type, 1, dt_onnx(type_word(m)));
        Text value = read_type(m);
        want(m, ")");
        put_message(&tensor_type, 2, &value);
        put_message(&type, 5, &tensor_type);
        return type;
    }
    put_int(&tensor_type, 1, dt_onnx(type_word(m)));
    if (accept(m, "[")) {
        Text shape = text_new(&m->b->arena);
        while (!accept(m, "]")) {
            Text dim = text_new(&m->b->arena);
            const char *extent = word(m);
            if (isdigit((unsigned char)*extent) || *extent == '-')
                put_int(&dim, 1, strtoll(extent, NULL, 10));
            else if (*extent != '?')
                put_string(&dim, 2, extent);
            put_message(&shape, 1, &dim);
        }
        put_message(&tensor_type, 2, &shape);
    }
    put_message(&type, 1, &tensor_type);
    return type;
}

static inline Text read_value_info(ModelText *m) {
    Text info = text_new(&m->b->arena);
    put_string(&info, 1, word(m));
    skip_blanks(m);
    /* a type follows if the next word is one */
    size_t n = strcspn(m->p, " \n\t,([");
    if (dt_parse(m->p, n) != DT_none || !strncmp(m->p, "seq(", 4) || !strncmp(m->p, "opt(", 4) ||
        !strncmp(m->p, "map(", 4)) {
        Text type = read_type(m);
        put_message(&info, 2, &type);
    }
    return info;
}

/* type[dims] and `open` values `close`; close "": as many as there are elements. */
static inline Text read_tensor(ModelText *m, const char *name, const char *open) {
    DType dt = type_word(m);
    int64_t dims[16], count = 1;
    int rank = 0;
    for (want(m, "["); !accept(m, "]"); rank++) {
        dims[rank] = strtoll(word(m), NULL, 10);
        count *= dims[rank];
    }
    Text t = tensor(m->b, name, dt, rank, dims);
    want(m, open);
    char *data = arena_alloc(&m->b->arena, (size_t)count * 16);
    for (int64_t i = 0; i < count; i++) {
        const char *text = word(m);
        Scalar number = {.f = strtod(text, NULL)};
        if (dt == DT_str) put_string(&t, 6, text);
        if (dt_kind(dt) <= DK_float) dt_save(dt, data, (size_t)i, dt_cast(DT_f64, dt, number));
    }
    if (*open == '(') want(m, ")");
    if (dt != DT_str) put_bytes(&t, 9, data, (size_t)count * dt_store(dt));
    return t;
}

static inline Text read_sparse(ModelText *m) {
    Bench *b = m->b;
    const char *name = word(m);
    DType dt = type_word(m);
    int64_t dims[16], index[64], n = 0;
    int rank = 0;
    for (want(m, "["); !accept(m, "]"); rank++) dims[rank] = strtoll(word(m), NULL, 10);
    want(m, "=");
    char data[64 * 16];
    while (skip_blanks(m), isdigit((unsigned char)*m->p)) {
        index[n] = strtoll(word(m), NULL, 10);
        want(m, ":");
        dt_save(dt, data, (size_t)n, dt_cast(DT_f64, dt, (Scalar){.f = strtod(word(m), NULL)}));
        n++;
    }
    Text values = tensor(b, name, dt, 1, &n), indices = tensor(b, "", DT_i64, 1, &n);
    put_bytes(&values, 9, data, (size_t)n * dt_store(dt));
    put_bytes(&indices, 9, index, (size_t)n * sizeof *index);
    Text sparse = text_new(&b->arena);
    put_message(&sparse, 1, &values);
    put_message(&sparse, 2, &indices);
    for (int i = 0; i < rank; i++) put_int(&sparse, 3, dims[i]);
    return sparse;
}

static inline Text model_graph(ModelText *m);

static inline void put_float(Text *t, unsigned field, float value) {
    put_tag(t, field, 5);
    text_addn(t, (const char *)&value, sizeof value);
}

static inline bool is_real(const char *number) {
    return strpbrk(number, ".ein") != NULL;
}

/* name=value; a name alone gives an attribute without a value. */
static inline Text read_attr(ModelText *m) {
    Text a = text_new(&m->b->arena);
    put_string(&a, 1, word(m));
    if (!accept(m, "=")) return a;
    if (accept(m, "@")) {
        put_string(&a, 21, word(m));
    } else if (accept(m, "graph{")) {
        Text g = model_graph(m);
        put_message(&a, 6, &g);
        put_int(&a, 20, 5);
    } else if (accept(m, "[")) {
        bool real = false;
        while (!accept(m, "]")) {
            skip_blanks(m);
            bool text = *m->p == '"';
            const char *item = word(m);
            real |= is_real(item);
            if (text)
                put_string(&a, 9, item);
            else if (real)
                put_float(&a, 7, strtof(item, NULL));
            else
                put_int(&a, 8, strtoll(item, NULL, 10));
            put_int(&a, 20, text ? 8 : real ? 6 : 7);
        }
    } else if (skip_blanks(m), *m->p == '"') {
        put_string(&a, 4, word(m));
        put_int(&a, 20, 3);
    } else if (isdigit((unsigned char)*m->p) || *m->p == '-' || *m->p == '.') {
        const char *number = word(m);
        if (is_real(number))
            put_float(&a, 2, strtof(number, NULL));
        else
            put_int(&a, 3, strtoll(number, NULL, 10));
        put_int(&a, 20, is_real(number) ? 1 : 2);
    } else {
        Text t = read_tensor(m, "", "(");
        put_message(&a, 5, &t);
        put_int(&a, 20, 4);
    }
    return a;
}

static inline void read_domain_and_name(ModelText *m, Text *t, unsigned domain, unsigned name) {
    const char *first = word(m);
    if (accept(m, ":")) {
        put_string(t, domain, first);
        first = word(m);
    }
    put_string(t, name, first);
}

static inline Text read_node(ModelText *m) {
    Text node = text_new(&m->b->arena);
    skip_blanks(m);
    if (*m->p == '"') put_string(&node, 3, word(m));
    while (!accept(m, "=")) put_string(&node, 2, word(m));
    read_domain_and_name(m, &node, 7, 4);
    for (want(m, "("); !accept(m, ")");) put_string(&node, 1, word(m));
    if (!accept(m, "{")) return node;
    while (!accept(m, "}")) {
        Text a = read_attr(m);
        put_message(&node, 5, &a);
    }
    return node;
}

static inline void read_opset(ModelText *m, Text *to, unsigned field) {
    Text set = text_new(&m->b->arena);
    const char *first = word(m);
    bool number = isdigit((unsigned char)*first) != 0;
    put_string(&set, 1, number ? "" : first);
    put_int(&set, 2, strtoll(number ? first : word(m), NULL, 10));
    put_message(to, field, &set);
}

static inline void read_function(ModelText *m) {
    Text f = text_new(&m->b->arena);
    read_domain_and_name(m, &f, 10, 1);
    for (want(m, "("); !accept(m, ")");) put_string(&f, 4, word(m));
    want(m, "->");
    for (want(m, "("); !accept(m, ")");) put_string(&f, 5, word(m));
    if (accept(m, "<"))
        while (!accept(m, ">")) {
            const char *start = m->p, *name = word(m);
            if (skip_blanks(m), *m->p == '=') {
                m->p = start;
                Text a = read_attr(m);
                put_message(&f, 11, &a);
            } else {
                put_string(&f, 6, name);
            }
        }
    want(m, "{");
    while (!accept(m, "}")) {
        if (accept(m, "opset")) {
            read_opset(m, &f, 9);
        } else {
            Text node = read_node(m);
            put_message(&f, 7, &node);
        }
    }
    put_message(&m->functions, 25, &f);
}

/* Up to the end or a closing brace. */
static inline Text model_graph(ModelText *m) {
    Text g = text_new(&m->b->arena);
    put_string(&g, 2, "main");
    while (skip_blanks(m), *m->p && !accept(m, "}")) {
        Text part;
        unsigned field = 0;
        if (accept(m, "ir")) {
            m->ir = strtoll(word(m), NULL, 10);
        } else if (accept(m, "opset")) {
            read_opset(m, &m->opsets, 8);
        } else if (accept(m, "function")) {
            read_function(m);
        } else if (accept(m, "init")) {
            const char *name = word(m);
            part = read_tensor(m, name, "=");
            field = 5;
        } else if (accept(m, "sparse")) {
            part = read_sparse(m);
            field = 15;
        } else if (accept(m, "input") || accept(m, "output") || accept(m, "value")) {
            field = m->p[-3] == 'p' && m->p[-5] == 'i' ? 11 : m->p[-1] == 't' ? 12 : 13;
            part = read_value_info(m);
        } else {
            part = read_node(m);
            field = 1;
        }
        if (field) put_message(&g, field, &part);
    }
    return g;
}

/* The bytes of the model. IR version 8 and opset 17 unless it says others. */
static inline Text model_bytes(Bench *b, const char *text) {
    ModelText m = {.b = b, .p = text, .ir = 8};
    m.opsets = text_new(&b->arena);
    m.functions = text_new(&b->arena);
    Text graph = model_graph(&m), bytes = text_new(&b->arena);
    if (!m.opsets.length) {
        ModelText usual = {.b = b, .p = "17"};
        read_opset(&usual, &m.opsets, 8);
    }
    put_int(&bytes, 1, m.ir);
    put_message(&bytes, 7, &graph);
    text_addn(&bytes, text_get(&m.opsets), m.opsets.length);
    text_addn(&bytes, text_get(&m.functions), m.functions.length);
    return bytes;
}

/* Imports it. dims: "N=3 x.1=1..4 --items x=[2],[3] --fix n=5", or NULL. NULL after messages (they
 * are in b->diag). */
static inline Graph *import_text(Bench *b, const char *text, const char *dims) {
    Text bytes = model_bytes(b, text);
    OnnxModel *model_ = ARENA_NEW(&b->arena, OnnxModel);
    Exprs *x = ARENA_NEW(&b->arena, Exprs);
    DimOption option[8];
    InputOption input[2][8];
    ImportOptions options = {.dims = option, .items = input[0], .fixed = input[1]};
    ModelText m = {.b = b, .p = dims ? dims : ""};
    while (skip_blanks(&m), *m.p) {
        bool items = accept(&m, "--items");
        if (items || accept(&m, "--fix")) {
            const char *name = word(&m);
            want(&m, "=");
            size_t n = strcspn(m.p, " ");
            InputOption *to = items ? &input[0][options.n_items++] : &input[1][options.n_fixed++];
            *to = (InputOption){name, arena_strndup(&b->arena, m.p, n), false};
            m.p += n;
            continue;
        }
        const char *name = word(&m);
        want(&m, "=");
        char *end;
        int64_t low = strtoll(word(&m), &end, 10);
        int64_t high = !strncmp(end, "..", 2) ? strtoll(end + 2, NULL, 10) : low;
        option[options.n_dims++] = (DimOption){.name = name, .low = low, .value = high};
    }
    exprs_init(x, &b->arena);
    if (!read_text(b, model_, &bytes)) return NULL;
    return onnx_import(&b->arena, x, &b->diag, model_, &options);
}

/* Numbers (or strings, "a" "b") of a text as elements of a value. */
static inline void *elements(Bench *b, const Value *v, const char *numbers) {
    ModelText m = {.b = b, .p = numbers};
    void *data = arena_alloc(&b->arena, value_bytes(v) + 16);
    if (v->text) {
        size_t width = (size_t)v->shape[v->rank - 1];
        memset(data, 0, value_bytes(v));
        for (size_t at = 0; at < value_bytes(v); at += width) {
            const char *string = word(&m);
            memcpy((char *)data + at, string, strnlen(string, width));
        }
        return data;
    }
    for (int64_t i = 0; i < value_numel(v); i++)
        dt_save(v->dt, data, (size_t)i,
                dt_cast(DT_f64, v->dt, (Scalar){.f = strtod(word(&m), NULL)}));
    return data;
}

/* The elements of a value as text, rounded to six digits. */
static inline const char *numbers_of(Bench *b, const Value *v, const int64_t *shape,
                                     const void *data) {
    Text t = text_new(&b->arena);
    for (int64_t i = 0; i < shape_numel(v->rank, shape); i++) {
        Scalar s = dt_load(v->dt, data, (size_t)i);
        if (dt_is_float(v->dt))
            text_addf(&t, "%s%.6g", i ? " " : "", s.f == 0 ? 0.0 : s.f);
        else
            text_addf(&t, "%s%lld", i ? " " : "", (long long)s.i);
    }
    return text_get(&t);
}

/* The rows of a value as strings, without the zeros behind them. */
static inline const char *strings_of(Bench *b, const Value *v, const int64_t *shape,
                                     const char *data) {
    Text t = text_new(&b->arena);
    size_t width = (size_t)v->shape[v->rank - 1];
    for (size_t at = 0; at < (size_t)shape_numel(v->rank, shape); at += width) {
        size_t length = strnlen(data + at, width);
        for (size_t k = length; k < width; k++) assert_int_equal(data[at + k], 0);
        text_addf(&t, "%s\"%.*s\"", at ? " " : "", (int)length, data + at);
    }
    return text_get(&t);
}

/* What a run gave as "type[shape] numbers" of each output, separated by "; "; or "fault: " and what
 * status says so. */
static inline const char *outputs_text(Bench *b, const Graph *g, void *const *out) {
    Text t = text_new(&b->arena);
    int status = graph_status_output(g);
    int fault = status >= 0 ? *(int32_t *)out[status] : 0;
    if (fault) return arena_printf(&b->arena, "fault: %s", g->faults.items[fault - 1]);
    for (int i = 0; i < g->outputs.n; i++) {
        const Value *v = g->outputs.items[i];
        bool text_out = g->output_text.items[i];
        int told = g->output_shape.items[i];
        if (told == i) continue; /* the status */
        const int64_t *shape = told >= 0 ? out[told] : v->shape;
        text_addf(&t, "%s%s%s %s", i ? "; " : "", dt_name(text_out ? DT_str : v->dt),
                  shape_text(&b->arena, v->rank - text_out, shape),
                  text_out ? strings_of(b, v, shape, out[i]) : numbers_of(b, v, shape, out[i]));
        if (told >= 0) i++; /* the shape itself */
    }
    return text_get(&t);
}

/* Imports and runs a model; the result is outputs_text's. inputs: numbers of each input, in order;
 * behind them the extents of dimensions that vary. Outputs of such have the shape that the run
 * gives. */
static inline const char *run_text(Bench *b, const char *text, const char *dims, int n_inputs,
                                   const char *const *inputs) {
    Graph *g = import_text(b, text, dims);
    if (!g) {
        for (int i = 0; i < b->diag.messages.n; i++)
            print_error("E%04d %s\n", (int)b->diag.messages.items[i].code,
                        b->diag.messages.items[i].text);
        forget(b);
        return "not imported";
    }
    assert_int_equal(g->inputs.n, n_inputs);
    const void **in = ARENA_ARRAY(&b->arena, n_inputs + 1, const void *);
    void **out = ARENA_ARRAY(&b->arena, g->outputs.n + 1, void *);
    for (int i = 0; i < n_inputs; i++) in[i] = elements(b, g->inputs.items[i], inputs[i]);
    for (int i = 0; i < g->outputs.n; i++)
        out[i] = arena_alloc(&b->arena, value_bytes(g->outputs.items[i]) + 16);
    assert_true(interp_graph(g, in, out));
    return outputs_text(b, g, out);
}

#endif
