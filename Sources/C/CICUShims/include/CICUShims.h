// ICU renames its functions by version with macros, which Swift does not see, and speaks UTF-16.
// These wrappers have fixed names and speak UTF-8. Each object belongs to one thread at a time.
#ifndef CICUSHIMS_H
#define CICUSHIMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cicu_number cicu_number;
typedef struct cicu_date cicu_date;
typedef struct cicu_plural cicu_plural;
typedef struct cicu_zone cicu_zone;

// Whether ICU knows the time zone's name.
bool cicu_is_time_zone(const char *zone);

// A time zone; NULL when ICU does not know the name.
cicu_zone *cicu_zone_open(const char *zone);
void cicu_zone_close(cicu_zone *zone);
// How far its clocks are ahead of UTC at a moment, in milliseconds; daylight saving is in it.
int32_t cicu_zone_offset(cicu_zone *zone, double millis);

// A decimal format of a locale; `fraction_digits` below 0 keeps the digits as they come, else
// rounds half to even. NULL when ICU refuses.
cicu_number *cicu_number_open(const char *locale, int32_t fraction_digits);
void cicu_number_close(cicu_number *format);
// Formats decimal text of any length; the UTF-8 length, or -1 when the text is no number or the
// buffer too small.
int32_t cicu_number_format(
    cicu_number *format, const char *text, int32_t length, char *buffer, int32_t capacity);

// Lengths of dates and times.
enum { cicu_full = 0, cicu_long = 1, cicu_medium = 2, cicu_short = 3, cicu_none = -1 };

// A date format of a locale in a time zone, by lengths, or by a skeleton when that is not NULL.
cicu_date *cicu_date_open(
    const char *locale, const char *zone, int32_t date, int32_t time, const char *skeleton);
void cicu_date_close(cicu_date *format);
// Formats milliseconds since the epoch; the UTF-8 length, or -1.
int32_t cicu_date_format(cicu_date *format, double millis, char *buffer, int32_t capacity);

// The cardinal plural rules of a locale.
cicu_plural *cicu_plural_open(const char *locale);
void cicu_plural_close(cicu_plural *rules);
// Writes the category's name in ASCII; its length, or -1.
int32_t cicu_plural_select(cicu_plural *rules, double number, char *buffer, int32_t capacity);

// Maps the case of UTF-8 by the rules of a locale; the length that is needed, which may exceed the
// capacity, or -1.
int32_t cicu_map_case(
    const char *locale, bool upper, const char *text, int32_t length, char *buffer,
    int32_t capacity);

#endif
