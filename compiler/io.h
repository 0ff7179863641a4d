/* A model's inputs and outputs and their memory, of a graph or of a library.
 *
 * Where dimensions vary, some inputs hold extents of others (one int32 each), and some outputs the
 * extents of others (int64); they are set and read here, and the outside does not see them.
 *
 * A model may be called several times, with the tensors of one call behind those of the call
 * before; its states (graphs: inputs and outputs behind all others) are handed on.
 */
#ifndef COMPILER_IO_H
#define COMPILER_IO_H

#include "compiler/tensor_file.h"

typedef struct Io {
    int n_in, n_out;
    TensorInfo *in, *out;       /* shape and bytes are those of the run at work */
    void **in_data, **out_data; /* room for the largest shapes, of all calls */
    int calls;
    size_t *out_room;     /* from one call of an output to the next */
    int n_states;         /* of a graph */
    bool may_fault;       /* runs of a graph with a fault (graph.h) are not reported ... */
    bool fault;           /* ... but said here */
    void **now, **next;   /* of each state, before and after a call */
    const void **call_in; /* the tensors of a call, see io_call; graphs: then the states */
    void **call_out;
} Io;

void io_of_graph(Session *s, Io *io, const Graph *g, int calls);
void io_of_model(Session *s, Io *io, const mlcc_model *m, int calls);

/* Room for all calls of output i. */
void *io_alloc_output(Session *s, const Io *io, int i);
/* Sets io->call_in and io->call_out to a call's tensors; the outputs are in `out`. */
void io_call(Io *io, int call, void *const *out);
/* Makes all calls, one after the other, the outputs to `out`. False after a diagnostic. */
bool io_interpret(const Graph *g, Io *io, void *const *out);
bool io_run(Session *s, LoadedModel *m, Io *io, void *const *out);

/* Does the input hold an extent; the output extents? */
bool io_input_hidden(const Io *io, int i);
bool io_output_hidden(const Io *io, int i);

typedef enum Extents { EXTENTS_largest, EXTENTS_smallest, EXTENTS_random } Extents;
/* Sets the inputs of all calls: reads the files of --input (with --calls they hold the tensors of
 * all calls, in a dimension more; else each call gets the same), takes extents from the shapes that
 * these have, by --extent or, of the others, by `which`, and makes all other tensors random. *state
 * is the generator's; NULL: none may be missing. False after a diagnostic. */
bool io_set_inputs(Session *s, Io *io, Extents which, uint64_t *state);
/* Sets the inputs that hold extents from the other inputs' shapes, and by --extent. False after a
 * diagnostic: two of them say different things, or one is out of its range. */
bool io_set_extents(Session *s, Io *io);
/* The tensor as it is in a file. */
TensorInfo io_in_file(Session *s, const Io *io, const TensorInfo *t);
/* "NAME=N, ..." of the dimensions that vary; NULL: all are the largest, or there is none. */
const char *io_smaller_extents(Session *s, const Io *io);
bool io_varies(const Io *io);
/* After a run: gives the outputs the shapes that it found. */
void io_take_shapes(Io *io);

#endif
