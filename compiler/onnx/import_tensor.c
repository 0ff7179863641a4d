/* Constants from the tensors that a model holds: initializers and attributes, dense or sparse. */
#include "compiler/onnx/import_impl.h"
#include "compiler/onnx/text.h"

#include <string.h>

/* Reports a tensor that cannot be a value here: strings, complex numbers, too many dimensions. */
static bool tensor_fits(Import *im, const OnnxTensor *t, const char *what) {
    if (dt_kind(t->dt) > DK_float) {
        diag_error(im->diag, E3003, "%s '%s': tensors of type %s are not supported", what, t->name,
                   dt_name(t->dt));
        return false;
    }
    if (t->rank > MAX_TENSOR_RANK) {
        diag_error(im->diag, E3002, "%s '%s' has %d dimensions; at most %d are supported", what,
                   t->name, t->rank, MAX_TENSOR_RANK);
        return false;
    }
    if (t->count > INT32_MAX) {
        diag_error(im->diag, E3005, "%s '%s' has %lld elements; at most 2^31-1 are supported", what,
                   t->name, (long long)t->count);
        return false;
    }
    if (!shape_fits(t->rank, t->dims)) {
        diag_error(im->diag, E3005, "%s '%s' has shape %s: at most 2^31-1 elements are supported",
                   what, t->name, shape_text(im->arena, t->rank, t->dims));
        return false;
    }
    return true;
}

Entity *attr_entity(Import *im, Graph *g, const Onnx__TensorProto *tensor) {
    OnnxTensor t;
    if (tensor->data_type == dt_onnx(DT_str)) {
        if (!onnx_tensor(&im->model->file, im->arena, im->diag, tensor, &t)) return NULL;
        Value *bytes = text_const(g, t.rank, t.dims, t.data);
        return bytes ? entity_strings(im, bytes) : NULL;
    }
    Value *v = attr_const(im, g, tensor);
    return v ? entity_tensor(im, v) : NULL;
}

Value *attr_const(Import *im, Graph *g, const Onnx__TensorProto *tensor) {
    OnnxTensor t;
    if (!onnx_tensor(&im->model->file, im->arena, im->diag, tensor, &t)) return NULL;
    if (!tensor_fits(im, &t, "tensor")) return NULL;
    return graph_const(g, t.dt, t.rank, t.dims, t.data);
}

/* The place in the dense tensor of sparse element k; -1 if it is outside. */
static int64_t sparse_place(const OnnxTensor *indices, int rank, const int64_t *dims, int64_t count,
                            int64_t k) {
    if (indices->rank < 2) {
        int64_t at = dt_load(DT_i64, indices->data, (size_t)k).i;
        return at >= 0 && at < count ? at : -1;
    }
    int64_t place = 0;
    for (int i = 0; i < rank; i++) {
        int64_t at = dt_load(DT_i64, indices->data, (size_t)(k * rank + i)).i;
        if (at < 0 || at >= dims[i]) return -1;
        place = place * dims[i] + at;
    }
    return place;
}

Value *attr_sparse_const(Import *im, Graph *g, const Onnx__SparseTensorProto *sparse) {
    OnnxTensor values, indices, dense;
    if (!sparse->values || !sparse->indices) {
        diag_error(im->diag, E2004, "a sparse tensor without values or indices");
        return NULL;
    }
    if (!onnx_tensor(&im->model->file, im->arena, im->diag, sparse->values, &values) ||
        !onnx_tensor(&im->model->file, im->arena, im->diag, sparse->indices, &indices))
        return NULL;
    dense = (OnnxTensor){.name = values.name,
                         .dt = values.dt,
                         .rank = sparse->n_dims > MAX_TENSOR_RANK ? MAX_TENSOR_RANK + 1
                                                                  : (int)sparse->n_dims,
                         .dims = sparse->dims,
                         .count = 1};
    for (int i = 0; i < dense.rank; i++) {
        int64_t d = sparse->dims[i];
        if (d < 0) {
            diag_error(im->diag, E2005, "sparse tensor '%s' has a dimension of %lld", values.name,
                       (long long)d);
            return NULL;
        }
        dense.count =
            d > INT32_MAX || dense.count > INT32_MAX ? (int64_t)INT32_MAX + 1 : dense.count * d;
    }
    if (!tensor_fits(im, &dense, "sparse tensor")) return NULL;
    bool shaped =
        indices.rank == 1 || (indices.rank == 2 && indices.dims[1] == dense.rank && dense.rank > 0);
    if (indices.dt != DT_i64 || !shaped || indices.dims[0] != values.count) {
        diag_error(im->diag, E2005, "sparse tensor '%s': the indices do not fit its values",
                   values.name);
        return NULL;
    }
    void *data = arena_alloc(im->arena, (size_t)dense.count * dt_store(dense.dt));
    for (int64_t k = 0; k < values.count; k++) {
        int64_t at = sparse_place(&indices, dense.rank, dense.dims, dense.count, k);
        if (at < 0) {
            diag_error(im->diag, E2005, "sparse tensor '%s': index %lld is outside of its shape",
                       values.name, (long long)k);
            return NULL;
        }
        size_t size = dt_store(dense.dt);
        memcpy((char *)data + (size_t)at * size, (const char *)values.data + (size_t)k * size,
               size);
    }
    return graph_const(g, dense.dt, dense.rank, dense.dims, data);
}
