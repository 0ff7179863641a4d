/* See tensor_file.h. */
#include "compiler/tensor_file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

TensorInfo info_of_value(Arena *arena, const Value *v, const char *name, bool text) {
    TensorInfo t = {.name = name,
                    .dt = v->dt,
                    .rank = v->rank,
                    .shape = arena_copy(arena, v->shape, (size_t)v->rank * sizeof *v->shape),
                    .bytes = value_bytes(v),
                    .shape_output = -1};
    if (!text) return t;
    t.dt = DT_str;
    t.width = (size_t)v->shape[--t.rank];
    return t;
}

TensorInfo info_of_model(Arena *arena, const mlcc_tensor *m) {
    TensorInfo t = {.name = m->name,
                    .dt = dt_from_onnx((int32_t)m->dtype),
                    .rank = (int)m->rank,
                    .shape = arena_copy(arena, m->shape, m->rank * sizeof *m->shape),
                    .bytes = (size_t)m->bytes,
                    .shape_output = -1};
    size_t n = (size_t)shape_numel(t.rank, t.shape);
    if (t.dt == DT_str) t.width = n ? t.bytes / n : 1;
    return t;
}

bool tensor_strings(Session *s, const TensorInfo *t, const char *path, const OnnxString *from,
                    void *data) {
    size_t n = (size_t)shape_numel(t->rank, t->shape);
    memset(data, 0, t->bytes);
    for (size_t i = 0; i < n; i++) {
        size_t length = from[i].length;
        if (length > t->width)
            diag_error(&s->diag, E0009,
                       "'%s': string %zu has %zu bytes; '%s' takes %zu (--string-bytes)", path, i,
                       length, t->name, t->width);
        else if (length && memchr(from[i].data, 0, length))
            diag_error(&s->diag, E0009, "'%s': string %zu has a zero byte in it", path, i);
        else if (length)
            memcpy((char *)data + i * t->width, from[i].data, length);
        if (s->diag.n_errors) return false;
    }
    return true;
}

/* Floats that NumPy does not have; their bit patterns are in its files. */
static bool is_pattern(DType dt) {
    return dt_is_float(dt) && dt_is_narrow(dt) && dt != DT_f16;
}

/* The descr of a tensor's elements: byte order, kind, size. */
static const char *npy_descr(Arena *arena, const TensorInfo *t) {
    DType dt = t->dt;
    if (t->width) return arena_printf(arena, "|S%zu", t->width);
    static const char kinds[] = {
        [DK_bool] = 'b', [DK_sint] = 'i', [DK_uint] = 'u', [DK_float] = 'f', [DK_complex] = 'c'};
    size_t size = dt_store(dt);
    char kind = kinds[dt_kind(dt)];
    if (is_pattern(dt)) kind = 'u';
    return arena_printf(arena, "%c%c%zu", size == 1 ? '|' : '<', kind, size);
}

static void *read_all(Session *s, const char *path, size_t *bytes) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    long size = -1;
    if (f && fstat(fileno(f), &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    void *data = NULL;
    if (size >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        data = arena_alloc(&s->arena, (size_t)size + 1);
        if (fread(data, 1, (size_t)size, f) != (size_t)size) data = NULL;
    }
    if (!data) diag_error(&s->diag, E0002, "cannot read '%s': %s", path, strerror(errno));
    if (f) fclose(f);
    *bytes = size > 0 ? (size_t)size : 0;
    return data;
}

/* Is the file's descr, "'<f4'", that of the dtype? '<f4' and '|f4' alike; what must fit is kind and
 * size. Bit patterns may be unsigned integers, or what ml_dtypes writes: '<V2', '<f1'. */
static bool descr_fits(const char *descr, const char *wanted, DType dt) {
    if ((*descr != '\'' && *descr != '"') || strlen(descr) < 5 || descr[1] == '>') return false;
    bool kind = descr[2] == wanted[1] || (is_pattern(dt) && strchr("Vf", descr[2]));
    size_t n = strlen(wanted + 2);
    return kind && !strncmp(descr + 3, wanted + 2, n) && !isdigit((unsigned char)descr[3 + n]);
}

/* Strings of NumPy, S (bytes) or U (UTF-32), of `size` units each. */
static bool read_npy_strings(Session *s, const TensorInfo *want, const char *path, bool wide,
                             size_t size, const unsigned char *from, size_t bytes, void *data) {
    size_t n = (size_t)shape_numel(want->rank, want->shape), unit = wide ? 4 : 1;
    if (size && n > bytes / unit / size) {
        diag_error(&s->diag, E0009, "'%s' is cut short", path);
        return false;
    }
    OnnxString *list = ARENA_ARRAY(&s->arena, n + 1, OnnxString);
    for (size_t i = 0; i < n; i++, from += size * unit) {
        size_t length = size; /* without the zeros at the end */
        while (length && !memcmp(from + (length - 1) * unit, "\0\0\0", unit)) length--;
        list[i] = (OnnxString){(const char *)from, length};
        if (!wide) continue;
        Text utf8 = text_new(&s->arena);
        for (size_t k = 0; k < length; k++) {
            const unsigned char *c = from + 4 * k;
            uint32_t code = c[0] | (uint32_t)c[1] << 8 | (uint32_t)c[2] << 16;
            char byte[4];
            int extra = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
            static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
            byte[0] = (char)(first[extra] | code >> 6 * extra);
            for (int e = 1; e <= extra; e++)
                byte[e] = (char)(0x80 | (code >> 6 * (extra - e) & 0x3f));
            text_addn(&utf8, byte, (size_t)extra + 1);
        }
        list[i] = (OnnxString){text_get(&utf8), utf8.length};
    }
    return tensor_strings(s, want, path, list, data);
}

/* The text after `key` in the header's dictionary. */
static const char *npy_field(const char *header, const char *key) {
    const char *at = strstr(header, key);
    if (!at) return "";
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

/* Is this a shape that the tensor may have? Then it has it. */
static bool take_shape(TensorInfo *t, int rank, const int64_t *shape) {
    if (rank != t->rank) return false;
    for (int i = 0; i < rank; i++) {
        bool varies = t->extent_input && t->extent_input[i] >= 0;
        if (varies ? shape[i] < 0 || shape[i] > t->shape[i] : shape[i] != t->shape[i]) return false;
    }
    if (!t->extent_input) return true;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = (size_t)shape_numel(rank, shape) * (t->width ? t->width : dt_store(t->dt));
    return true;
}

static bool read_npy(Session *s, TensorInfo *want, const char *path, void *data) {
    size_t bytes;
    unsigned char *file = read_all(s, path, &bytes);
    if (!file) return false;
    if (bytes < 12 || memcmp(file, "\x93NUMPY", 6) != 0) {
        diag_error(&s->diag, E0009, "'%s' is no .npy file", path);
        return false;
    }
    if (file[6] < 1 || file[6] > 3) {
        diag_error(&s->diag, E0009, "'%s' is of version %d.%d of .npy, expected 1.0 to 3.0", path,
                   file[6], file[7]);
        return false;
    }
    size_t start = file[6] == 1 ? 10 : 12, length = file[8] | (size_t)file[9] << 8;
    if (file[6] != 1) length |= (size_t)file[10] << 16 | (size_t)file[11] << 24;
    if (length > bytes - start) {
        diag_error(&s->diag, E0009, "'%s' is cut short", path);
        return false;
    }
    char *header = arena_strndup(&s->arena, (char *)file + start, length);
    const char *descr = npy_field(header, "'descr'"), *wanted = npy_descr(&s->arena, want);
    bool strings =
        want->width && (!strncmp(descr + !!*descr, "|S", 2) || !strncmp(descr + !!*descr, "<U", 2));
    if (!strings && (want->width || !descr_fits(descr, wanted, want->dt))) {
        size_t quoted = *descr ? strcspn(descr + 1, "'\"") : 0;
        diag_error(&s->diag, E0009, "'%s' holds elements '%.*s'; input '%s' is %s ('%s')", path,
                   quoted < 20 ? (int)quoted : 20, quoted ? descr + 1 : "", want->name,
                   dt_name(want->dt), wanted);
        return false;
    }
    if (strncmp(npy_field(header, "'fortran_order'"), "False", 5) != 0) {
        diag_error(&s->diag, E0009, "'%s' is in Fortran order, it must be in C order", path);
        return false;
    }
    int64_t shape[MAX_RANK];
    int rank = 0;
    char *at = arena_strdup(&s->arena, npy_field(header, "'shape'")), *end;
    for (at += *at == '('; rank < MAX_RANK; at = end) {
        while (*at == ' ' || *at == ',') at++;
        long long d = strtoll(at, &end, 10);
        if (end == at) break;
        shape[rank++] = d;
    }
    if (!take_shape(want, rank, shape)) {
        diag_error(&s->diag, E0009, "'%s' has shape %s; input '%s' has %s", path,
                   shape_text(&s->arena, rank, shape), want->name,
                   shape_text(&s->arena, want->rank, want->shape));
        return false;
    }
    if (strings)
        return read_npy_strings(s, want, path, descr[2] == 'U', strtoul(descr + 3, NULL, 10),
                                file + start + length, bytes - start - length, data);
    if (bytes - start - length < want->bytes) {
        diag_error(&s->diag, E0009, "'%s' is cut short", path);
        return false;
    }
    memcpy(data, file + start + length, want->bytes);
    return true;
}

bool tensor_take(Session *s, TensorInfo *want, const char *path, const OnnxTensor *t, void *data) {
    if (t->dt != want->dt || !take_shape(want, t->rank, t->dims)) {
        diag_error(&s->diag, E0009, "'%s' holds %s%s; input '%s' is %s%s", path, dt_name(t->dt),
                   shape_text(&s->arena, t->rank, t->dims), want->name, dt_name(want->dt),
                   shape_text(&s->arena, want->rank, want->shape));
        return false;
    }
    if (want->width) return tensor_strings(s, want, path, t->data, data);
    if (want->bytes) memcpy(data, t->data, want->bytes);
    return true;
}

static bool read_pb(Session *s, TensorInfo *want, const char *path, void *data) {
    OnnxData file;
    OnnxTensor t;
    s->diag.where = arena_printf(&s->arena, "'%s'", path);
    bool ok = onnx_read_data(&file, &s->arena, &s->diag, ONNX_DATA_tensor, path) &&
              onnx_tensor(&file.file, &s->arena, &s->diag, file.tensor, &t);
    s->diag.where = NULL;
    ok = ok && tensor_take(s, want, path, &t, data);
    onnx_close(&file.file);
    return ok;
}

bool tensor_read(Session *s, TensorInfo *want, const char *path, void *data) {
    const char *dot = strrchr(path, '.');
    return dot && !strcmp(dot, ".pb") ? read_pb(s, want, path, data)
                                      : read_npy(s, want, path, data);
}

OutputFile tensor_npy(Session *s, const TensorInfo *t, const char *path, const void *data) {
    Text head = text_new(&s->arena);
    text_addf(&head, "{'descr': '%s', 'fortran_order': False, 'shape': (", npy_descr(&s->arena, t));
    for (int i = 0; i < t->rank; i++) text_addf(&head, "%lld,", (long long)t->shape[i]);
    text_add(&head, "), }");
    while ((10 + head.length + 1) % 64) text_add(&head, " ");
    text_add(&head, "\n");
    size_t bytes = 10 + head.length + t->bytes;
    unsigned char *file = arena_alloc(&s->arena, bytes);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (unsigned char)head.length;
    file[9] = (unsigned char)(head.length >> 8);
    memcpy(file + 10, text_get(&head), head.length);
    if (t->bytes) memcpy(file + 10 + head.length, data, t->bytes);
    return (OutputFile){.path = path, .data = file, .bytes = bytes};
}

/* --- random tensors --------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void tensor_random(const TensorInfo *t, void *data, uint64_t *state) {
    size_t n = (size_t)shape_numel(t->rank, t->shape);
    if (t->width) {
        memset(data, 0, t->bytes);
        for (size_t i = 0; i < n; i++) {
            uint64_t r = next_random(state);
            size_t length = (size_t)(r % (t->width < 4 ? t->width + 1 : 5));
            for (size_t k = 0; k < length; k++)
                ((char *)data)[i * t->width + k] = (char)('a' + (r >> (8 + 8 * k) & 3));
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        uint64_t r = next_random(state);
        Scalar v;
        if (dt_is_float(t->dt))
            v.f = (double)(r >> 11) * 0x1p-52 - 1;
        else
            v.i = t->dt == DT_bool ? (int64_t)(r & 1) : (int64_t)(r % 4);
        dt_save(t->dt, data, i, v);
    }
}
