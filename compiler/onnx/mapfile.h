/* The files that one model needs, mapped into memory: the model's own and its external data.
 *
 * A model names its external data by paths relative to its folder, and a model may come from
 * anybody. So such a path must be relative and must not climb out by "..", and the file that it
 * leads to, symbolic links followed, must lie in the model's folder or below it. Where the model
 * itself is reached by a symbolic link (a download cache keeps files elsewhere and links to them),
 * the folder that the model really lies in counts as well.
 */
#ifndef COMPILER_ONNX_MAPFILE_H
#define COMPILER_ONNX_MAPFILE_H

#include "ir/diag.h"

#include <stdbool.h>

typedef struct OnnxMap {
    struct OnnxMap *next;
    const char *path;    /* as the user or the model spells it */
    unsigned char *data; /* NULL if the file is empty */
    size_t size;
} OnnxMap;

typedef struct OnnxMaps {
    Arena *arena;
    OnnxMap *list;
    const char *folder;      /* of the model, as the user wrote it */
    const char *real_folder; /* the same without symbolic links */
    const char *real_home;   /* the folder that the model's file really lies in */
    StrMap by_location;      /* external data -> OnnxMap */
} OnnxMaps;

/* Maps the model's file at `path`. NULL after a message (E0002). Before anything is mapped, *maps
 * is set: maps_close can be called from then on. */
const OnnxMap *maps_open(OnnxMaps **maps, Arena *arena, Diag *diag, const char *path);
/* Maps the external data file at `location`; the second time it costs nothing. NULL after a message
 * (E1202, E1203). */
const OnnxMap *maps_external(OnnxMaps *maps, Diag *diag, const char *location);
/* Takes what has been read of the files out of memory; it is read again where it is wanted again.
 */
void maps_release(const OnnxMaps *maps);
void maps_close(OnnxMaps *maps);

#endif
