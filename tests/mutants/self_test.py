"""The check of the table finds what is wrong with one."""
import unittest

from run import ROOT, apply, missing_tests, parse

SOURCES = {"base/a.cpp": "if (x) f();\nif (y) f();\n"}


def entry(name="one", test="caught by: unit_base *", old="if (x) f();", new="if (x && !MUTANT) f();"):
    return f"mutant: {name}\n{test}\nbase/a.cpp\n-{old}\n+{new}\n"


class TableTest(unittest.TestCase):
    def complaints(self, table):
        return apply(parse(table), SOURCES)[1]

    def test_a_sound_table(self):
        other = entry("two", "equivalent: so", "if (y)", "if (MUTANT || y)")
        mutated, complaints = apply(parse("# both\n" + entry() + "\n" + other), SOURCES)
        self.assertEqual(complaints, [])
        self.assertRegex(mutated["base/a.cpp"], r'^#include "base/mutant.h"\nif \(x && !::distag::mutant_is_on\(\d+UL\)\)')
        self.assertIn("(::distag::mutant_is_on(", mutated["base/a.cpp"])

    def test_texts_that_are_not_there_once(self):
        self.assertIn("0 times", self.complaints(entry(old="if (z)"))[0])
        self.assertIn("2 times", self.complaints(entry(old="f();"))[0])

    def test_several_lines_and_several_texts(self):
        table = entry(old="if (x) f();\n-if", new="if (MUTANT)") + "-(y)\n+(MUTANT)\n"
        self.assertEqual(self.complaints(table), [])
        self.assertIn("MUTANT is not", self.complaints(entry(new="if (!x) f();"))[0])

    def test_texts_that_cannot_compile(self):
        self.assertIn("no gone", self.complaints(entry(new="if (gone && !MUTANT) f();"))[0])
        sources = {"base/a.h": "int own_;\n", "base/b.h": "int lost_;\n", **SOURCES}
        for field, complaints in (("own_", 0), ("lost_", 1)):
            table = parse(entry(new=f"if (x && !MUTANT) {field} = y;  // whatever else"))
            self.assertEqual(len(apply(table, sources)[1]), complaints, field)
        self.assertEqual(self.complaints(entry(new='if (x && !MUTANT) f("any words");')), [])

    def test_texts_of_two_mutants_that_overlap(self):
        self.assertIn("another mutant", self.complaints(entry() + entry("two", old="(x) f"))[0])

    def test_entries_that_lack_something(self):
        self.assertIn("a test or a reason", self.complaints(entry(test="# nothing"))[0])
        self.assertIn("not its own", self.complaints(entry() + entry(old="if (y)"))[0])
        for table in ("-x\n", "mutant: one\nunknown: 1\n", "mutant: one\n-x\n"):
            with self.assertRaises(ValueError):
                parse(table)

    def test_tests_that_are_not_there(self):
        def missing(test):
            return missing_tests(parse(entry(test="caught by: " + test)), ROOT)

        self.assertEqual(missing("unit_group Membership.*"), [])
        for test in ("unit_rpc Membership.*", "unit_group Membership.IsThere", "unit_none Membership.*"):
            self.assertIn("has no test", missing(test)[0])


if __name__ == "__main__":
    unittest.main()
