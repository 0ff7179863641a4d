/* One of two things that a model computes, by a condition that is known in a run only: what If and
 * the end of a loop come down to. */
#ifndef COMPILER_ONNX_SELECT_H
#define COMPILER_ONNX_SELECT_H

#include "compiler/onnx/text.h"

bool same_type(const Value *a, const Value *b);
/* `a` where the scalar `cond` holds, else `b`; NULL if they are not of one type and shape, or, if
 * extents may differ (`varies`), of one type and rank; single elements get the higher rank. */
Entity *select_entity(Node *n, Graph *g, Value *cond, Entity *a, Entity *b, bool varies);
/* Type and shape, for messages. */
const char *entity_text(Arena *arena, const Entity *e);

#endif
