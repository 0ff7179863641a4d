/* Inside of the host-program printers: constants as text, and what C and GPU hosts share. */
#ifndef CODEGEN_HOST_H
#define CODEGEN_HOST_H

#include "codegen/codegen.h"
#include "codegen/cprint.h"

/* True if a constant is printed as numbers, by print_array; else print_large does it, and its
 * elements are name.v. */
bool weights_readable(const Value *v);
void print_array(Unit *unit, const Value *v, const char *name, Text *out);
void print_large(Unit *unit, const Value *v, const char *name, Text *out);
/* Bytes as string literals: the initialiser of what print_bytes_type declares. `more`: others
 * follow in another call; until then they are whole rows of that type. */
void print_bytes(Text *out, const void *data, size_t bytes, bool more);
void print_bytes_type(Text *out, size_t bytes);
/* What stands before and after such initialisers. */
void print_bytes_guard(Text *out, bool begin);

/* The names of all kernels in a dialect, taken in `names`. */
const char **kernel_names(const Program *p, Names *names);
int kernel_index(const Program *p, const Kernel *k);
/* True if the kernel is launched at least once. */
bool kernel_launched(const Program *p, const Kernel *k);
/* May threads of a block read what others of it have stored to parameter i? */
bool parameter_exchanged(const Kernel *k, int i);
/* True if in every launch the memory of parameter i is free of stores through another parameter,
 * and no other parameter reads what is stored through it: it may be `restrict`. */
bool parameter_alone(const Program *p, const Kernel *k, int i);
/* True if two arguments have memory in common. */
bool places_overlap(const Place *a, const Place *b);
/* Notes an error for every element type that the dialect cannot hold. */
bool types_supported(const Program *p, const Dialect *d);
/* Tables and functions of the descriptor: the mlcc_tensor arrays `mlcc_inputs` and `mlcc_outputs`.
 */
void print_tensors(const Program *p, Text *out);
/* The fields of mlcc_model that they are. */
void print_tensor_fields(const Program *p, const char *indent, Text *out);
/* The symbol of ir/dim.h that an input is: it holds an extent of others. -1: none. */
int input_symbol(const Program *p, int i);
/* The input that holds the value of a symbol; -1: none. */
int symbol_input(const Program *p, int symbol);
/* Do dimensions of inputs or outputs vary? */
bool program_varies(const Program *p);
/* The functions and the descriptor of a C library; `team`: its steps are for several threads,
 * `kept`: it has states. */
void print_c_library(const Program *p, const EmitOptions *o, bool team, bool kept, Text *out);
/* Prints what opening a library does with weights that are inside: see runtime/resident.h. */
void print_hold_weights(const Program *p, const EmitOptions *o, Text *out);
/* mlcc_open, mlcc_close and mlcc_reset of a C library with states, and the type mlcc_instance of
 * what one that is open has; `team`: it is the user of a team (runtime/team.h). */
void print_instance(const Program *p, const EmitOptions *o, bool team, Text *out);
/* C: the function that does the steps, given all inputs: PREFIX_run, where nothing is decoded. */
const char *steps_name(const Program *p, const EmitOptions *o);
/* Images that are decoded before the steps (host_images.c). `own`: the bytes of the arena that the
 * steps need; behind them the pixels lie. All of it: */
int64_t arena_with_images(const Program *p, int64_t own);
/* The decoder's prototype, and its text for the end of the file. Nothing where there are no images.
 */
void print_decoder_prototype(const Program *p, Text *out);
void print_decoder(const Program *p, const EmitOptions *o, Text *out);
/* The statements that decode. input: what the inputs are called that callers give; those behind
 * them get what they are. */
void print_decoding(const Program *p, int64_t own, const char **input, Text *out);
/* mlcc_run of a library: decodes, and calls `steps`, a function like it, with all inputs. */
void print_decoding_run(const Program *p, int64_t own, const char *steps, Text *out);
/* Are the rows of an input or output strings for the outside? */
bool is_text(const Program *p, bool input, int i);
/* The name of a graph's input or output as the model has it. */
const char *input_name(const Program *p, int i);
const char *output_name(const Program *p, int i);

#endif
