/* A model's inputs and outputs and their memory, of a graph or of a library.
 *
 * Where dimensions vary, some inputs hold extents of others (one int32 each), and some outputs the
 * extents of others (int64); they are set and read here, and the outside does not see them.
 */
#ifndef COMPILER_IO_H
#define COMPILER_IO_H

#include "compiler/tensor_file.h"

typedef struct Io {
    int n_in, n_out;
    TensorInfo *in, *out;       /* shape and bytes are those of the run at work */
    void **in_data, **out_data; /* room for the largest shapes */
} Io;

void io_of_graph(Session *s, Io *io, const Graph *g);
void io_of_model(Session *s, Io *io, const mlcc_model *m);

/* Does the input hold an extent; the output extents? */
bool io_input_hidden(const Io *io, int i);
bool io_output_hidden(const Io *io, int i);

/* Sets the inputs that hold extents from the other inputs' shapes. False after a diagnostic: two of
 * them say different things, or one is out of its range. */
bool io_set_extents(Session *s, Io *io);
typedef enum Extents { EXTENTS_largest, EXTENTS_smallest, EXTENTS_random } Extents;
/* Chooses extents, and shapes by them. */
void io_choose_extents(Io *io, Extents which, uint64_t *state);
bool io_varies(const Io *io);
/* After a run: gives the outputs the shapes that it found. */
void io_take_shapes(Io *io);

#endif
