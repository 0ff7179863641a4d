/* The runtime's sources, carried inside mlcc (written by scripts/embed-files when mlcc is built).
 */
#ifndef COMPILER_EMBEDDED_H
#define COMPILER_EMBEDDED_H

#include <stddef.h>

typedef struct EmbeddedFile {
    const char *name; /* path in the source tree, e.g. "runtime/gpu.h" */
    const char *data; /* zero-terminated */
    size_t bytes;
} EmbeddedFile;

extern const EmbeddedFile embedded_files[]; /* ends with a NULL name */

#endif
