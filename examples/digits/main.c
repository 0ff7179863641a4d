/* Classifies handwritten digits with the code that mlcc generated from digits.onnx.
 *
 * Shows a few of the images in heldout.h as text, each with the digit the model sees in it, then
 * says how many of all of them it gets right. None of them was seen in training. Ends with 0 when
 * the accuracy is at least WANTED_PERMILLE, with 1 otherwise.
 *
 * Nothing else is needed than this file, heldout.h and what mlcc writes:
 *     mlcc digits.onnx -o digits_model.c
 *     cc -std=c99 -O2 main.c digits_model.c -lm -o digits
 */
#include <stdint.h>
#include <stdio.h>

#include "digits_model.h"
#include "heldout.h"

#define WANTED_PERMILLE 970
#define SHOWN           6
#define SIDE            8
#define FULL_INK        16

/* The model's scratch memory: 64-byte aligned, which C99 has no word for, hence the slack. */
static unsigned char arena_space[DIGITS_MODEL_ARENA_BYTES + 63u];

static void *arena(void) {
    uintptr_t address = (uintptr_t)arena_space;
    return arena_space + ((64u - address % 64u) % 64u);
}

/* Index of the largest of the model's ten probabilities for image `i`; -1 when the model fails. */
static int classify(int i, float *probability) {
    float input[DIGITS_MODEL_INPUT_SIZE];
    float output[DIGITS_MODEL_OUTPUT_SIZE];
    int best = 0;
    for (int p = 0; p < SIDE * SIDE; p++)
        input[p] = (float)(heldout[i].pixels[p] - 'a') / (float)FULL_INK;
    if (digits_model_run(input, output, arena()) != 0) return -1;
    for (int digit = 1; digit < 10; digit++)
        if (output[digit] > output[best]) best = digit;
    *probability = output[best];
    return best;
}

/* One row of `SHOWN` images side by side, two characters a pixel so that they look square. */
static void show(const int *images) {
    static const char ink[] = " .:-=+*#@";
    for (int row = 0; row < SIDE; row++) {
        for (int n = 0; n < SHOWN; n++) {
            for (int column = 0; column < SIDE; column++) {
                int level = heldout[images[n]].pixels[row * SIDE + column] - 'a';
                char c = ink[level / 2];
                printf("%c%c", c, c);
            }
            printf(n + 1 < SHOWN ? "   " : "\n");
        }
    }
    for (int n = 0; n < SHOWN; n++) {
        float probability = 0.0f;
        int guess = classify(images[n], &probability);
        printf("a %d (%5.1f %%)%s", guess, (double)probability * 100.0,
               n + 1 < SHOWN ? "      " : "\n");
    }
}

int main(void) {
    int images[SHOWN];
    int right = 0;
    for (int n = 0; n < SHOWN; n++) images[n] = n * (HELDOUT_COUNT / SHOWN);
    show(images);

    for (int i = 0; i < HELDOUT_COUNT; i++) {
        float probability = 0.0f;
        int guess = classify(i, &probability);
        if (guess < 0) {
            fprintf(stderr, "digits: the model failed on image %d\n", i);
            return 1;
        }
        right += guess == heldout[i].label;
    }
    printf("\naccuracy on %d unseen images: %.4f (%d right)\n", HELDOUT_COUNT,
           (double)right / HELDOUT_COUNT, right);
    return right * 1000 >= WANTED_PERMILLE * HELDOUT_COUNT ? 0 : 1;
}
