/* Tests describe_wrong: its description of a wrong matrix must name the fault that the test has put in. */

#include "tests/device/wrong.h"
#include "tests/test.h"
#include "runtime/model/random.h"

enum { ROWS = 128, COLUMNS = 96 };
static double got[ROWS * COLUMNS], expected[ROWS * COLUMNS];

typedef double Fault(size_t row, size_t column);

static double right(size_t row, size_t column) { return expected[row * COLUMNS + column]; }

/* Puts `fault` into a random matrix and checks that the description is `words`. Many of the values are close to each
   other. */
static void assert_said(Fault *fault, const char *words)
{
    char text[400];
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        expected[i] = (double)(random_bits(1, i) % 2048) / 256 - 4;
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        got[i] = fault(i / COLUMNS, i % COLUMNS);
    describe_wrong(got, expected, ROWS, COLUMNS, 0.01, text, sizeof text);
    if (strcmp(text, words) != 0)
        fail_msg("said: %s", text);
}

static double half_unwritten(size_t row, size_t column) { return row < 64 ? right(row, column) : (double)NAN; }
static double zeros(size_t row, size_t column) { return column % 8 == 3 ? 0 : right(row, column); }
static double one(size_t row, size_t column) { return row == 77 && column == 5 ? 9.5 : right(row, column); }
static double next_tile(size_t row, size_t column) { return row < 32 ? right(row + 32, column) : right(row, column); }
static double before(size_t row, size_t column) { return column < 8 ? right(row, column) : right(row, column - 8); }
static double swizzled(size_t row, size_t column) { return right(row ^ 1, column ^ 24); }
static double twice(size_t row, size_t column) { return (row >= 120 ? 2 : 1) * right(row, column); }
static double diagonal(size_t row, size_t column) { return right(row, column) + (row == column) * (double)(row + 1); }
static double scattered(size_t row, size_t column)
{
    return right(row, column) + (row * row % 17 == 1 && column == 0 ? 3 + 0.1 * (double)row : 0);
}
static double little(size_t row, size_t column) { return right(row, column) + (row == 3 && column == 4) * 0.005; }

TEST(test_faults)
{
    assert_said(half_unwritten,
                "6144 of 12288 wrong: rows 64..127, all 96 columns; 6144 not a number, or never written");
    assert_said(zeros, "1531 of 12288 wrong: all 128 rows, columns 3..91 every 8th, 99.7 % of these; "
                       "1531 zero; worst at [76, 91]: 0, should be -4");
    assert_said(one, "1 of 12288 wrong: row 77, column 5; worst at [77, 5]: 9.5, should be 0.328125");
    assert_said(next_tile,
                "3064 of 12288 wrong: rows 0..31, all 96 columns, 99.7 % of these; "
                "1 zero; worst at [19, 76]: -3.984375, should be 3.96875; most have the value of row ^ 32, column ^ 0");
    assert_said(before,
                "11245 of 12288 wrong: all 128 rows, columns 8..95, 99.8 % of these; "
                "4 zero; worst at [55, 14]: -3.976562, should be 3.902344; most have the value of row +0, column -8");
    assert_said(
        swizzled,
        "12264 of 12288 wrong: all 128 rows, all 96 columns, 99.8 % of these; "
        "5 zero; worst at [34, 36]: -3.984375, should be 3.964844; most have the value of row ^ 1, column ^ 24");
    assert_said(twice, "765 of 12288 wrong: rows 120..127, all 96 columns, 99.6 % of these; "
                       "worst at [121, 5]: -8, should be -4; most are 2 times what they should be");
    assert_said(diagonal, "96 of 12288 wrong: rows 0..95, all 96 columns, 1.04 % of these; "
                          "worst at [95, 95]: 99.12109, should be 3.121094");
    assert_said(scattered, "15 of 12288 wrong: rows 1, 16, 18, 33 and more, 15 of 128, column 0; "
                           "worst at [120, 0]: 14.32031, should be -0.6796875");
    assert_said(little, "none of 12288 by more than 0.01; worst at [3, 4]: 2.364375, should be 2.359375");
}

/* The description is truncated to the size of the text buffer, here 8 bytes, and nothing around the buffer is
   written. */
TEST(test_room)
{
    char text[20] = "", *whole = text + 10;
    memset(text, '#', sizeof text);
    describe_wrong(got, expected, 1, 1, -1, whole, 8);
    assert_string_equal(whole, "1 of 1 ");
    assert_int_equal(text[9], '#');
    assert_int_equal(text[18], '#');
}

int main(void) { return test_program("wrong", NULL, NULL); }
