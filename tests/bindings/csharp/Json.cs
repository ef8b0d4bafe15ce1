using System;
using System.Collections.Generic;
using System.Globalization;
using System.Text;

/// Reads JSON: maps are Dictionary, lists object[], numbers long or, with a point or an exponent, double.
static class Json {
    public static object Read(string text) {
        int at = 0;
        object value = ReadValue(text, ref at);
        Skip(text, ref at);
        if (at != text.Length) throw new FormatException("more JSON at " + at);
        return value;
    }

    static void Skip(string text, ref int at) {
        while (at < text.Length && char.IsWhiteSpace(text[at])) at++;
    }

    static object ReadValue(string text, ref int at) {
        Skip(text, ref at);
        switch (text[at]) {
            case '{': return ReadMap(text, ref at);
            case '[': return ReadList(text, ref at);
            case '"': return ReadText(text, ref at);
        }
        int begin = at;
        while (at < text.Length && ",]} \t\r\n".IndexOf(text[at]) < 0) at++;
        string word = text.Substring(begin, at - begin);
        switch (word) {
            case "null": return null;
            case "true": return true;
            case "false": return false;
            case "NaN": return double.NaN;
            case "Infinity": return double.PositiveInfinity;
            case "-Infinity": return double.NegativeInfinity;
            case "-0.0": return -0.0;
        }
        if (word.IndexOfAny(new[] { '.', 'e', 'E' }) < 0) return long.Parse(word, CultureInfo.InvariantCulture);
        return double.Parse(word, CultureInfo.InvariantCulture);
    }

    static Dictionary<string, object> ReadMap(string text, ref int at) {
        var map = new Dictionary<string, object>();
        at++;
        for (Skip(text, ref at); text[at] != '}'; Skip(text, ref at)) {
            if (text[at] == ',') at++;
            Skip(text, ref at);
            string key = ReadText(text, ref at);
            Skip(text, ref at);
            at++; // the colon
            map[key] = ReadValue(text, ref at);
        }
        at++;
        return map;
    }

    static object[] ReadList(string text, ref int at) {
        var list = new List<object>();
        at++;
        for (Skip(text, ref at); text[at] != ']'; Skip(text, ref at)) {
            if (text[at] == ',') at++;
            list.Add(ReadValue(text, ref at));
        }
        at++;
        return list.ToArray();
    }

    static string ReadText(string text, ref int at) {
        var found = new StringBuilder();
        for (at++; text[at] != '"'; at++) {
            if (text[at] != '\\') {
                found.Append(text[at]);
                continue;
            }
            at++;
            if (text[at] == 'u') {
                found.Append((char)int.Parse(text.Substring(at + 1, 4), NumberStyles.HexNumber));
                at += 4;
            } else {
                int which = "bfnrt".IndexOf(text[at]);
                found.Append(which < 0 ? text[at] : "\b\f\n\r\t"[which]);
            }
        }
        at++;
        return found.ToString();
    }
}
