#include "compiler/output/palette.h"
#include "compiler/schedule/schedule.h"

#include <math.h>
#include <stdlib.h>

static const struct {
    Colour light, dark;
} shades[] = {
    [ACTION_F] = {{0xff, 0xd9, 0x8c}, {0xf0, 0xa6, 0x2e}}, [ACTION_B] = {{0x4b, 0xa6, 0x7e}, {0x1f, 0x6b, 0x4e}},
    [ACTION_I] = {{0xc9, 0xee, 0xf5}, {0x7c, 0xcb, 0xdc}}, [ACTION_W] = {{0x40, 0x69, 0xc0}, {0x23, 0x3f, 0x9c}},
    [ACTION_U] = {{0xb0, 0x30, 0x7a}, {0x46, 0x10, 0x4f}},
};

static uint8_t between(uint8_t from, uint8_t to, double part) { return (uint8_t)lround(from + part * (to - from)); }

Colour palette_fill(uint8_t kind, uint32_t variant, uint32_t variants)
{
    const Colour light = shades[kind].light, dark = shades[kind].dark;
    const double part = variants > 1 ? (double)variant / (variants - 1) : 0;
    return (Colour){between(light.red, dark.red, part), between(light.green, dark.green, part),
                    between(light.blue, dark.blue, part)};
}

static double linear(uint8_t component)
{
    const double value = component / 255.0;
    return value <= 0.04045 ? value / 12.92 : pow((value + 0.055) / 1.055, 2.4);
}

static double luminance(Colour colour)
{
    return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

double palette_contrast(Colour one, Colour other)
{
    const double a = luminance(one), b = luminance(other);
    return a > b ? (a + 0.05) / (b + 0.05) : (b + 0.05) / (a + 0.05);
}

Colour palette_ink(Colour fill)
{
    const Colour black = {0, 0, 0}, white = {255, 255, 255};
    return palette_contrast(fill, black) >= palette_contrast(fill, white) ? black : white;
}

int palette_terminal(Colour colour)
{
    static const uint8_t levels[] = {0, 95, 135, 175, 215, 255};
    const uint8_t components[] = {colour.red, colour.green, colour.blue};
    int code = 0;
    for (int c = 0; c < 3; c++) {
        int nearest = 0;
        for (int i = 1; i < 6; i++)
            if (abs(levels[i] - components[c]) < abs(levels[nearest] - components[c]))
                nearest = i;
        code = 6 * code + nearest;
    }
    return 16 + code;
}
