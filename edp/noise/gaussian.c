/* Gaussian noise from ChaCha8 (Bernstein 2008) and Box-Muller, 16 blocks of 16 words side by side.

   Plain C with GCC's vector types, which GCC and Clang map to whatever the processor has. A group of 256 numbers is
   made of the blocks 16*group to 16*group + 15 of the stream of `key`. Radius and angle have 64 bits: nonce 0 gives the
   high words, nonce 1 the low ones where they matter. No number is 0, because a 0 would show what it is added to. The
   largest is sqrt(2 * 65 * ln 2) = 9.49. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define GROUP 256

typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef float floats __attribute__((vector_size(4 * LANES)));

#define ROTATE(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
#define QUARTER(a, b, c, d)                                                                                            \
    a += b, d = ROTATE(d ^ a, 16), c += d, b = ROTATE(b ^ c, 12), a += b, d = ROTATE(d ^ a, 8), c += d,                \
    b = ROTATE(b ^ c, 7)

static inline words every(uint32_t x) { return (words){0} + x; }
static inline floats choose(ints mask, floats yes, floats no) {
    return (floats)(((ints)yes & mask) | ((ints)no & ~mask));
}

static void chacha8(const uint32_t key[8], uint64_t group, uint32_t nonce, words x[16]) {
    static const uint32_t constant[4] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574};
    words start[16];
    for (int i = 0; i < 4; i++) start[i] = every(constant[i]);
    for (int i = 0; i < 8; i++) start[4 + i] = every(key[i]);
    /* 16 blocks of a group never carry into the upper word */
    start[12] = every((uint32_t)(group * LANES)) + (words){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    start[13] = every((uint32_t)(group * LANES >> 32));
    start[14] = every(nonce);
    start[15] = every(0);
    memcpy(x, start, sizeof start);
    for (int round = 0; round < 8; round += 2) {
        QUARTER(x[0], x[4], x[8], x[12]);
        QUARTER(x[1], x[5], x[9], x[13]);
        QUARTER(x[2], x[6], x[10], x[14]);
        QUARTER(x[3], x[7], x[11], x[15]);
        QUARTER(x[0], x[5], x[10], x[15]);
        QUARTER(x[1], x[6], x[11], x[12]);
        QUARTER(x[2], x[7], x[8], x[13]);
        QUARTER(x[3], x[4], x[9], x[14]);
    }
    for (int i = 0; i < 16; i++) x[i] += start[i];
}

/* high + low / 2^32 + 2^-33, both words signed. Never 0, and with all digits of a float near 0: nothing cancels there. */
static inline floats number(words high, words low) {
    return __builtin_convertvector((ints)high, floats) +
           (__builtin_convertvector((ints)low, floats) * 0x1p-32f + 0x1p-33f);
}

/* Natural logarithm of u = p, or 1 + p for p < 0, where -1/2 <= p <= 1/2 is not 0 (polynomial of Cephes' logf). */
static inline floats logarithm(floats p) {
    floats u = p + choose(p < 0.0f, (floats){0} + 1.0f, (floats){0});
    ints bits = (ints)u;
    floats exponent = __builtin_convertvector((bits >> 23) - 126, floats);
    floats x = (floats)((bits & 0x7fffff) | 0x3f000000); /* 0.5 to 1 */
    ints low = x < 0.70710678f;
    exponent += choose(low, (floats){0} - 1.0f, (floats){0});
    x = choose(u > 0.75f, p, choose(low, x + x, x) - 1.0f); /* 1 + p has lost the digits of a small p */
    floats z = x * x, y = x * 7.0376836292e-2f - 1.1514610310e-1f;
    y = y * x + 1.1676998740e-1f, y = y * x - 1.2420140846e-1f, y = y * x + 1.4249322787e-1f;
    y = y * x - 1.6668057665e-1f, y = y * x + 2.0000714765e-1f, y = y * x - 2.4999993993e-1f;
    y = (y * x + 3.3333331174e-1f) * x * z - exponent * 2.12194440e-4f - 0.5f * z;
    return x + y + exponent * 0.693359375f;
}

/* 256 numbers ~ N(0, std^2) of as many words of 64 bits. */
static inline void box_muller(const words high[16], const words low[16], float std, floats z[16]) {
    for (int i = 0; i < 8; i++) {
        floats square = logarithm(number(high[i], low[i]) * 0x1p-32f) * -2.0f, radius;
        for (int lane = 0; lane < LANES; lane++) radius[lane] = sqrtf(square[lane]) * std;
        /* split the angle into a quadrant and a rest within an eighth of a turn */
        words quadrant = (high[8 + i] + 0x20000000u) >> 30;
        floats a = number(high[8 + i] - (quadrant << 30), low[8 + i]) * 1.4629180792671596e-9f;
        floats b = a * a;
        floats sine = ((b * -1.9515295891e-4f + 8.3321608736e-3f) * b - 1.6666654611e-1f) * b * a + a;
        floats cosine = ((b * 2.443315711809948e-5f - 1.388731625493765e-3f) * b + 4.166664568298827e-2f) * b * b -
                        0.5f * b + 1.0f;
        ints odd = (quadrant & 1u) == 1u;
        words minus_cosine = ((quadrant + 1u) & 2u) << 30, minus_sine = (quadrant & 2u) << 30;
        z[i] = radius * (floats)((words)choose(odd, sine, cosine) ^ minus_cosine);
        z[8 + i] = radius * (floats)((words)choose(odd, cosine, sine) ^ minus_sine);
    }
}

static void gaussian_group(const uint32_t key[8], uint64_t group, float std, floats z[16]) {
    words high[16], low[16];
    ints small = {0};
    int any = 0;
    chacha8(key, group, 0, high);
    for (int i = 0; i < 16; i++) {
        small |= ((high[i] + 0x10000u) & 0x3fffffffu) < 0x20000u;
        low[i] = every(0);
    }
    for (int lane = 0; lane < LANES; lane++) any |= small[lane];
    /* The low words matter where a high one is within 2^16 of a quarter turn: in one group of 32. */
    if (any) chacha8(key, group, 1, low);
    box_muller(high, low, std, z);
}

/* out = clip_factor * out + std * Gaussian, for n numbers from group `first` on. With clip_factor 0, out may be unset. */
void edp_gaussian(float *out, int64_t n, const uint32_t key[8], uint64_t first, float clip_factor, float std) {
    for (int64_t done = 0; done < n; done += GROUP) {
        floats z[16];
        float *flat = (float *)z;
        int count = n - done < GROUP ? (int)(n - done) : GROUP;
        /* Prefetch two groups ahead, also past the end of the array: a prefetch never faults. */
        for (int line = 0; line < GROUP; line += 16) __builtin_prefetch(out + done + 2 * GROUP + line, 1);
        gaussian_group(key, first + (uint64_t)(done / GROUP), std, z);
        if (clip_factor == 0)
            memcpy(out + done, flat, sizeof(float) * (size_t)count);
        else
            for (int i = 0; i < count; i++) out[done + i] = clip_factor * out[done + i] + flat[i];
    }
}

/* The 256 words of a group and nonce, block after block: for the test against a literal ChaCha8. */
void edp_words(uint32_t *out, const uint32_t key[8], uint64_t group, uint32_t nonce) {
    words x[16];
    chacha8(key, group, nonce, x);
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < 16; i++) out[16 * lane + i] = x[i][lane];
}
