/* A memo from expressions to expressions, for walks that must see shared nodes once. */
#ifndef IR_EXPR_MEMO_H
#define IR_EXPR_MEMO_H

#include "ir/expr.h"

typedef struct MemoSlot {
    const Expr *key, *value; /* key NULL: free */
} MemoSlot;

typedef struct Memo {
    Arena *arena;
    MemoSlot *slots;
    uint32_t n, cap;
} Memo;

/* The slot of `e`. If its key is NULL the caller fills key and value and counts it in memo->n,
 * before it asks for another slot. */
MemoSlot *memo_slot(Memo *memo, const Expr *e);
void memo_set(Memo *memo, const Expr *e, const Expr *value);
/* Gives the table back to the arena. */
void memo_end(Memo *memo);

#endif
