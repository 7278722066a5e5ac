/* Colours of passes: text is readable on each, and all kinds of passes look different, also to colour-blind eyes. */
#include "compiler/output/palette.h"
#include "compiler/schedule/schedule.h"
#include "tests/test.h"

#include <math.h>

enum { KINDS = ACTION_U + 1 };

TEST(test_text_is_legible)
{
    for (uint8_t kind = 0; kind < KINDS; kind++)
        for (uint32_t variants = 1; variants <= 8; variants++)
            for (uint32_t v = 0; v < variants; v++) {
                const Colour fill = palette_fill(kind, v, variants);
                assert_true(palette_contrast(fill, palette_ink(fill)) >= 4.5);
            }
    const Colour black = {0, 0, 0}, white = {255, 255, 255};
    assert_true(fabs(palette_contrast(black, white) - 21) < 1e-9);
}

/* Full colour vision, and three kinds of colour blindness on linear RGB (Machado, Oliveira, Fernandes 2009, severity
   1). */
static const double views[][3][3] = {
    {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
    {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
    {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
    {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
};
enum { VIEWS = sizeof views / sizeof *views };

static double linear(uint8_t component)
{
    const double value = component / 255.0;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static double lab_curve(double t) { return t > 0.008856 ? cbrt(t) : 7.787 * t + 16.0 / 116; }

static void lab_of(Colour colour, int view, double lab[3])
{
    const double seen[3] = {linear(colour.red), linear(colour.green), linear(colour.blue)};
    double rgb[3];
    for (int i = 0; i < 3; i++) {
        rgb[i] = views[view][i][0] * seen[0] + views[view][i][1] * seen[1] + views[view][i][2] * seen[2];
        rgb[i] = fmin(1, fmax(0, rgb[i]));
    }
    const double x = lab_curve((0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.95047);
    const double y = lab_curve(0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]);
    const double z = lab_curve((0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.08883);
    lab[0] = 116 * y - 16;
    lab[1] = 500 * (x - y);
    lab[2] = 200 * (y - z);
}

static double difference(Colour one, Colour other, int view)
{
    double a[3], b[3];
    lab_of(one, view, a);
    lab_of(other, view, b);
    return sqrt((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]) + (a[2] - b[2]) * (a[2] - b[2]));
}

/* In Lab units a difference of 2.3 is just visible; 12 is visible at a glance. */
TEST(test_kinds_look_different)
{
    for (int view = 0; view < VIEWS; view++)
        for (uint8_t one = 0; one < KINDS; one++)
            for (uint8_t other = 0; other < KINDS; other++)
                for (uint32_t v = 0; v < 4; v++)
                    if (one == other)
                        assert_true(difference(palette_fill(one, 0, 2), palette_fill(one, 1, 2), view) > 12);
                    else
                        assert_true(difference(palette_fill(one, v & 1, 2), palette_fill(other, v >> 1, 2), view) > 12);
}

TEST(test_terminal)
{
    assert_int_equal(palette_terminal((Colour){0, 0, 0}), 16);
    assert_int_equal(palette_terminal((Colour){255, 255, 255}), 231);
    assert_int_equal(palette_terminal((Colour){255, 0, 0}), 196);
    int seen[KINDS * 2], count = 0;
    for (uint8_t kind = 0; kind < KINDS; kind++)
        for (uint32_t v = 0; v < 2; v++) {
            seen[count] = palette_terminal(palette_fill(kind, v, 2));
            for (int i = 0; i < count; i++)
                assert_int_not_equal(seen[i], seen[count]);
            count++;
        }
}

int main(void) { return test_program("palette", NULL, NULL); }
