#include "CICUShims.h"

#include <pthread.h>
#include <unicode/ucal.h>
#include <unicode/ucasemap.h>
#include <unicode/udat.h>
#include <unicode/udatpg.h>
#include <unicode/uloc.h>
#include <unicode/unum.h>
#include <unicode/upluralrules.h>
#include <unicode/ustring.h>

enum { zone_units = 64, pattern_units = 128, text_units = 256 };

static pthread_once_t once = PTHREAD_ONCE_INIT;

// Unknown languages get ICU's default, which would be whatever the machine's environment says.
static void set_default_locale(void) {
    UErrorCode status = U_ZERO_ERROR;
    uloc_setDefault("en", &status);
}

static int32_t to_utf8(const UChar *text, int32_t length, char *buffer, int32_t capacity) {
    UErrorCode status = U_ZERO_ERROR;
    int32_t written = 0;
    u_strToUTF8(buffer, capacity, &written, text, length, &status);
    return U_SUCCESS(status) ? written : -1;
}

static bool to_utf16(const char *text, UChar *buffer, int32_t capacity) {
    UErrorCode status = U_ZERO_ERROR;
    int32_t length = 0;
    u_strFromUTF8(buffer, capacity, &length, text, -1, &status);
    return U_SUCCESS(status) && length < capacity;
}

bool cicu_is_time_zone(const char *zone) {
    UChar name[zone_units], canonical[zone_units];
    UBool is_system = false;
    UErrorCode status = U_ZERO_ERROR;
    if (zone[0] == 0 || !to_utf16(zone, name, zone_units)) return false;
    ucal_getCanonicalTimeZoneID(name, -1, canonical, zone_units, &is_system, &status);
    return U_SUCCESS(status) && is_system;
}

cicu_zone *cicu_zone_open(const char *zone) {
    pthread_once(&once, set_default_locale);
    UChar name[zone_units];
    UErrorCode status = U_ZERO_ERROR;
    // An unknown zone would become GMT without a word.
    if (!cicu_is_time_zone(zone) || !to_utf16(zone, name, zone_units)) return NULL;
    UCalendar *calendar = ucal_open(name, -1, "en", UCAL_GREGORIAN, &status);
    return U_SUCCESS(status) ? (cicu_zone *)calendar : NULL;
}

void cicu_zone_close(cicu_zone *zone) { ucal_close((UCalendar *)zone); }

int32_t cicu_zone_offset(cicu_zone *zone, double millis) {
    UErrorCode status = U_ZERO_ERROR;
    UCalendar *calendar = (UCalendar *)zone;
    ucal_setMillis(calendar, millis, &status);
    int32_t offset = ucal_get(calendar, UCAL_ZONE_OFFSET, &status)
        + ucal_get(calendar, UCAL_DST_OFFSET, &status);
    return U_SUCCESS(status) ? offset : 0;
}

cicu_number *cicu_number_open(const char *locale, int32_t fraction_digits) {
    pthread_once(&once, set_default_locale);
    UErrorCode status = U_ZERO_ERROR;
    UNumberFormat *format = unum_open(UNUM_DECIMAL, NULL, 0, locale, NULL, &status);
    if (U_FAILURE(status)) return NULL;
    unum_setAttribute(format, UNUM_ROUNDING_MODE, UNUM_ROUND_HALFEVEN);
    if (fraction_digits < 0) {
        unum_setAttribute(format, UNUM_MIN_FRACTION_DIGITS, 0);
        unum_setAttribute(format, UNUM_MAX_FRACTION_DIGITS, text_units);
    } else {
        unum_setAttribute(format, UNUM_FRACTION_DIGITS, fraction_digits);
    }
    return (cicu_number *)format;
}

void cicu_number_close(cicu_number *format) { unum_close((UNumberFormat *)format); }

int32_t cicu_number_format(
    cicu_number *format, const char *text, int32_t length, char *buffer, int32_t capacity) {
    UChar result[text_units];
    UErrorCode status = U_ZERO_ERROR;
    int32_t units = unum_formatDecimal(
        (UNumberFormat *)format, text, length, result, text_units, NULL, &status);
    if (U_FAILURE(status) || units > text_units) return -1;
    return to_utf8(result, units, buffer, capacity);
}

cicu_date *cicu_date_open(
    const char *locale, const char *zone, int32_t date, int32_t time, const char *skeleton) {
    pthread_once(&once, set_default_locale);
    UChar zone_name[zone_units], pattern[pattern_units];
    UErrorCode status = U_ZERO_ERROR;
    int32_t pattern_length = -1;
    if (!to_utf16(zone, zone_name, zone_units)) return NULL;
    if (skeleton != NULL) {
        UChar letters[pattern_units];
        if (!to_utf16(skeleton, letters, pattern_units)) return NULL;
        UDateTimePatternGenerator *generator = udatpg_open(locale, &status);
        if (U_FAILURE(status)) return NULL;
        pattern_length = udatpg_getBestPattern(
            generator, letters, -1, pattern, pattern_units, &status);
        udatpg_close(generator);
        if (U_FAILURE(status) || pattern_length > pattern_units) return NULL;
        date = time = UDAT_PATTERN;
    }
    UDateFormat *format = udat_open(
        (UDateFormatStyle)time, (UDateFormatStyle)date, locale, zone_name, -1,
        skeleton == NULL ? NULL : pattern, pattern_length, &status);
    return U_SUCCESS(status) ? (cicu_date *)format : NULL;
}

void cicu_date_close(cicu_date *format) { udat_close((UDateFormat *)format); }

int32_t cicu_date_format(cicu_date *format, double millis, char *buffer, int32_t capacity) {
    UChar result[text_units];
    UErrorCode status = U_ZERO_ERROR;
    int32_t units = udat_format(
        (UDateFormat *)format, millis, result, text_units, NULL, &status);
    if (U_FAILURE(status) || units > text_units) return -1;
    return to_utf8(result, units, buffer, capacity);
}

cicu_plural *cicu_plural_open(const char *locale) {
    pthread_once(&once, set_default_locale);
    UErrorCode status = U_ZERO_ERROR;
    UPluralRules *rules = uplrules_open(locale, &status);
    return U_SUCCESS(status) ? (cicu_plural *)rules : NULL;
}

void cicu_plural_close(cicu_plural *rules) { uplrules_close((UPluralRules *)rules); }

int32_t cicu_plural_select(cicu_plural *rules, double number, char *buffer, int32_t capacity) {
    UChar result[16];
    UErrorCode status = U_ZERO_ERROR;
    int32_t units = uplrules_select((UPluralRules *)rules, number, result, 16, &status);
    if (U_FAILURE(status) || units > 16) return -1;
    return to_utf8(result, units, buffer, capacity);
}

int32_t cicu_map_case(
    const char *locale, bool upper, const char *text, int32_t length, char *buffer,
    int32_t capacity) {
    UErrorCode status = U_ZERO_ERROR;
    UCaseMap *map = ucasemap_open(locale, 0, &status);
    if (U_FAILURE(status)) return -1;
    int32_t written =
        upper ? ucasemap_utf8ToUpper(map, buffer, capacity, text, length, &status)
              : ucasemap_utf8ToLower(map, buffer, capacity, text, length, &status);
    ucasemap_close(map);
    return U_SUCCESS(status) || status == U_BUFFER_OVERFLOW_ERROR ? written : -1;
}
