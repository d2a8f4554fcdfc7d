/* libconfig's grammar once more, for the sake of its errors:
 *     settings = { NAME ('=' | ':') value [';' | ','] }
 *     value    = STRING {STRING} | NUMBER | true | false
 *              | '{' settings '}' | '[' .. ']' | '(' .. ')'
 * What stands in arrays and lists is looked at in part. Brackets are at most GF_CONFIG_DEPTH_MAX
 * deep, or the text has been refused before. */
#include "config/config_syntax.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum token_kind { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_NUMBER, TOKEN_SIGN };

struct token {
    enum token_kind kind;
    const char *at;
    int length;
    int line;
};

struct syntax {
    const char *at; /* what was not read yet */
    int line;
    struct token now;
    int wanted_line; /* libconfig's */
    char *text_out;
};

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*";
static const char name_rest[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_*-";

/* Over spaces and comments. */
static void blanks_skip(struct syntax *syntax)
{
    for (;;) {
        const char *at = syntax->at;
        if ((*at == '#') || ((at[0] == '/') && (at[1] == '/'))) {
            syntax->at += strcspn(at, "\n");
        } else if ((at[0] == '/') && (at[1] == '*')) {
            const char *end = strstr(at + 2, "*/");
            end = (end != NULL) ? end + 2 : at + strlen(at);
            for (; syntax->at < end; syntax->at++) syntax->line += (*syntax->at == '\n');
        } else if ((*at != '\0') && (strchr(" \t\r\n\f", *at) != NULL)) {
            syntax->line += (*at == '\n');
            syntax->at++;
        } else {
            return;
        }
    }
}

static void token_next(struct syntax *syntax)
{
    const char *at;
    enum token_kind kind = TOKEN_SIGN;
    size_t length = 1;
    blanks_skip(syntax);
    at = syntax->at;
    if (*at == '\0') {
        kind = TOKEN_END;
        length = 0;
    } else if (*at == '"') {
        kind = TOKEN_STRING;
        while ((at[length] != '\0') && (at[length] != '"'))
            length += ((at[length] == '\\') && (at[length + 1] != '\0')) ? 2 : 1;
        length += (at[length] == '"');
    } else if (strchr(letters, *at) != NULL) {
        kind = TOKEN_NAME;
        length = strspn(at, name_rest);
    } else if (strchr("0123456789.+-", *at) != NULL) {
        size_t digits = strspn(at, "0123456789abcdefABCDEFxXLeE.+-");
        /* a dot alone is a sign */
        kind = (strcspn(at, "0123456789") < digits) ? TOKEN_NUMBER : TOKEN_SIGN;
        if (kind == TOKEN_NUMBER) length = digits;
    }
    syntax->now =
        (struct token){.kind = kind, .at = at, .length = (int)length, .line = syntax->line};
    for (size_t i = 0; i < length; i++) syntax->line += (at[i] == '\n');
    syntax->at = at + length;
}

static bool token_is(const struct token *token, char sign)
{
    return (token->kind == TOKEN_SIGN) && (token->at[0] == sign);
}

static bool token_ends(const struct token *token)
{
    return token_is(token, ';') || token_is(token, ',');
}

static bool token_closes(const struct token *token)
{
    return token_is(token, '}') || token_is(token, ']') || token_is(token, ')');
}

static bool token_says(const struct token *token, const char *word)
{
    return ((size_t)token->length == strlen(word)) &&
           (strncasecmp(token->at, word, (size_t)token->length) == 0);
}

/* Long ones are cut. */
static int shown(const struct token *token)
{
    return (token->length < 40) ? token->length : 40;
}

__attribute__((format(printf, 2, 3))) static bool broken(struct syntax *syntax, const char *format,
                                                         ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(syntax->text_out, GF_SYNTAX_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

/* Was the name at `now` there before, in the group whose settings begin at `group`? */
static bool name_before(const struct syntax *syntax, const char *group, int group_line,
                        int *line_out)
{
    struct syntax again = {.at = group, .line = group_line};
    int depth = 0;
    for (token_next(&again); again.now.at < syntax->now.at; token_next(&again)) {
        const struct token *token = &again.now;
        if (token_is(token, '{') || token_is(token, '[') || token_is(token, '(')) depth++;
        if (token_closes(token)) depth--;
        if ((depth != 0) || (token->kind != TOKEN_NAME) || (token->length != syntax->now.length) ||
            (strncmp(token->at, syntax->now.at, (size_t)token->length) != 0))
            continue;
        *line_out = token->line;
        return true;
    }
    return false;
}

/* The functions below return false where they have said what is wrong. */
static bool settings_read(struct syntax *syntax, int open_line);

static bool group_read(struct syntax *syntax)
{
    int open_line = syntax->now.line;
    token_next(syntax);
    if (!settings_read(syntax, open_line)) return false;
    token_next(syntax); /* its } */
    return true;
}

/* An array or a list, whose elements may be groups, arrays and lists. */
static bool elements_read(struct syntax *syntax)
{
    const struct token open = syntax->now;
    const char close = (open.at[0] == '[') ? ']' : ')';
    token_next(syntax);
    while (!token_is(&syntax->now, close)) {
        const struct token *now = &syntax->now;
        if ((now->kind == TOKEN_END) || token_is(now, ';') || token_closes(now))
            return broken(syntax, "the %c of line %d has no %c", open.at[0], open.line, close);
        if (token_is(now, '{')) {
            if (!group_read(syntax)) return false;
        } else if (token_is(now, '[') || token_is(now, '(')) {
            if (!elements_read(syntax)) return false;
        } else {
            token_next(syntax);
        }
    }
    token_next(syntax);
    return true;
}

static bool value_read(struct syntax *syntax, const struct token *name)
{
    const struct token value = syntax->now;
    if (token_is(&value, '{')) return group_read(syntax);
    if (token_is(&value, '[') || token_is(&value, '(')) return elements_read(syntax);
    if ((value.kind == TOKEN_NAME) && !token_says(&value, "true") && !token_says(&value, "false"))
        return broken(syntax, "%.*s is not in quotes: write %.*s = \"%.*s\";", shown(&value),
                      value.at, shown(name), name->at, shown(&value), value.at);
    if ((value.kind == TOKEN_SIGN) || (value.kind == TOKEN_END))
        return broken(syntax, "%.*s has no value", shown(name), name->at);
    token_next(syntax);
    while ((value.kind == TOKEN_STRING) && (syntax->now.kind == TOKEN_STRING)) token_next(syntax);
    return true;
}

static bool setting_read(struct syntax *syntax, const char *group, int group_line)
{
    const struct token name = syntax->now;
    int before;
    if (name.kind != TOKEN_NAME)
        return broken(syntax, "%.*s stands where a key should: key = value;", shown(&name),
                      name.at);
    if ((name.line == syntax->wanted_line) && name_before(syntax, group, group_line, &before))
        return broken(syntax, "%.*s stands in line %d, too", shown(&name), name.at, before);
    token_next(syntax);
    if (token_is(&syntax->now, '.'))
        return broken(syntax,
                      "a key has no dot: for %.*s.key = value; write %.*s = { key = value; };",
                      shown(&name), name.at, shown(&name), name.at);
    if (!token_is(&syntax->now, '=') && !token_is(&syntax->now, ':'))
        return broken(syntax, "after %.*s a = is missing", shown(&name), name.at);
    token_next(syntax);
    if (!value_read(syntax, &name)) return false;
    if (token_ends(&syntax->now)) token_next(syntax);
    return true;
}

/* Settings up to the } of the group that was opened in open_line; 0: up to the end. */
static bool settings_read(struct syntax *syntax, int open_line)
{
    const char *group = syntax->now.at;
    int group_line = syntax->now.line;
    for (;;) {
        if (syntax->now.kind == TOKEN_END)
            return (open_line == 0) ||
                   broken(syntax, "the { of line %d has no }: is one missing at its end?",
                          open_line);
        if (token_is(&syntax->now, '}'))
            return (open_line != 0) || broken(syntax, "this } has no { before it");
        if (!setting_read(syntax, group, group_line)) return false;
    }
}

char *gf_syntax_explain(const char *text, int line, char *text_out)
{
    struct syntax syntax = {.at = text, .line = 1, .wanted_line = line, .text_out = text_out};
    text_out[0] = '\0';
    token_next(&syntax);
    (void)settings_read(&syntax, 0);
    return text_out;
}
