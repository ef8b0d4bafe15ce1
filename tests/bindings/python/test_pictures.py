"""Pictures of shardings as SVG and HTML: parsed as XML, and compared to the boxes of the mesh."""
import json
import re
import unittest
import xml.etree.ElementTree as ElementTree

import distag

SVG = "{http://www.w3.org/2000/svg}"
HTML = "{http://www.w3.org/1999/xhtml}"


def parse(text):
    svg = ElementTree.fromstring(text)
    assert svg.tag == SVG + "svg", svg.tag
    return svg


def parse_page(text):
    assert text.startswith("<!DOCTYPE html>\n"), text[:40]
    page = ElementTree.fromstring(text)
    assert page.tag == HTML + "html", page.tag
    return page


def member_rows(page):
    members, = (table for table in page.iter(HTML + "table") if table.get("class") == "members")
    return [[cell.text for cell in row] for row in members.iter(HTML + "tr")]


def rectangles(svg):
    """Of the parts: x, y, width, height by the text of the part."""
    return {group.find(SVG + "title").text: [float(group.find(SVG + "rect").get(name))
                                             for name in ("x", "y", "width", "height")]
            for group in svg.iter(SVG + "g")}


def table(svg):
    return dict(line.rsplit(": ", 1) for line in svg.find(SVG + "desc").text.splitlines()[1:])


def luminance(color):
    parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


class Pictures(unittest.TestCase):
    def check(self, spec, shape, mesh=None, dims=(0, 1)):
        draw = mesh.visualize if mesh else distag.visualize_sharding
        options = {"label": ""} if len(shape) == 1 else {"label": "", "dims": dims}
        svg = parse(draw(spec, shape, format="svg", **options))
        boxes = json.loads(draw(spec, shape, format="json"))["boxes"]
        listed, drawn = table(svg), rectangles(svg)
        self.assertEqual(len(listed), len(boxes))
        column, row = (0, None) if len(shape) == 1 else (dims[1], dims[0])
        for box in boxes:
            spans = [f"{begin}:{begin + count}" for begin, count in zip(box["offset"], box["extent"])]
            members = listed[", ".join(spans)]
            self.assertEqual([int(rank) for rank in re.findall(r"\d+", members)], box["members"])
            hidden = [begin for i, begin in enumerate(box["offset"]) if i not in (row, column)]
            if any(hidden):
                continue
            x, y, width, height = drawn.pop(f"{', '.join(spans)}: {members}")
            self.assertAlmostEqual(x, 10 + 480 * box["offset"][column] / shape[column], delta=0.011)
            self.assertAlmostEqual(width, 480 * box["extent"][column] / shape[column], delta=0.011)
            if row is not None:
                self.assertAlmostEqual(y, 38 + 360 * box["offset"][row] / shape[row], delta=0.011)
                self.assertAlmostEqual(height, 360 * box["extent"][row] / shape[row], delta=0.011)
        self.assertEqual(drawn, {})

    def test_parts_lie_where_the_boxes_of_the_mesh_are(self):
        mesh = distag.Mesh((2, 3), ("x", "y"))
        self.check(("x", "y"), (4, 7), mesh)
        self.check((None, "y"), (5, 3), mesh)
        self.check((("x", "y"),), (13,), mesh)
        self.check(("x", None, "y"), (4, 2, 9), mesh)
        self.check(("x", None, "y"), (4, 2, 9), mesh, dims=(2, 0))
        self.check("{devices=[2,2]3,1,2,0}", (5, 9))

    def test_scalars_empty_tensors_and_sums(self):
        mesh = distag.Mesh((2,), ("x",))
        self.assertEqual(table(parse(mesh.visualize((), (), format="svg"))), {"the whole": "CPU [0, 1]"})
        empty = parse(mesh.visualize(("x",), (0,), format="svg"))
        self.assertEqual((empty.find(SVG + "desc").text, rectangles(empty)), ("elements: members\nno elements\n", {}))
        partial = mesh.visualize("() sum('x')", (), format="svg")
        self.assertIn("a part of the sum over x", partial)
        self.assertEqual(table(parse(partial)), {"the whole": "+ CPU [0, 1]"})

    def test_text_of_the_host_stays_text(self):
        for label in ("<script>alert(1)</script>", "]]>", "&amp;", "\"'>", "é\N{CJK UNIFIED IDEOGRAPH-5B57}", "\ufffe\uffff",
                      "\x01\x1b\n\t"):
            svg = parse(distag.visualize_sharding("{devices=[2]0,1}", (4,), format="svg", label=label))
            self.assertEqual([part for part in svg.iter() if "script" in part.tag], [])
            shown = "".join(c if c >= " " and c not in "\ufffe\uffff" else "?" for c in label)
            self.assertEqual(table(svg)["0:2"], f"{shown} 0")

    def test_size_is_bounded(self):
        for label in ("CPU", "\"" * 127):
            for spec in ("{devices=[4096]<=[4096]}", "{devices=[64,64]<=[4096]}", "{replicated}"):
                shape = (10 ** 8, 10 ** 8) if "64," in spec else (10 ** 12,)
                text = distag.visualize_sharding(spec, shape, format="svg", label=label)
                self.assertLess(len(text.encode()), 1 << 20)
                svg = parse(text)
                if "replicated" not in spec:
                    said = re.search(r"(\d+) of 4096 parts", svg.find(SVG + "desc").text)
                    self.assertEqual(len(rectangles(svg)), int(said[1]))
                    self.assertLessEqual(int(said[1]), 1024)
        text = distag.Mesh((4096,), ("x",)).visualize((None,), (4,), format="svg", label="")
        self.assertIn("and 4080 more", text)

    def test_texts_can_be_read_on_light_and_dark_pages(self):
        text = distag.visualize_sharding("{devices=[2]0,1}", format="svg")
        light, dark = re.search(r"<style>(.*)@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", text).groups()
        for style in (light, dark):
            fills = dict(re.findall(r"\.distag-(\w+)\{fill:(#[0-9a-f]{6})", style))
            ink = fills.pop("text")
            self.assertEqual(len(fills), 7)
            for name, fill in fills.items():
                self.assertGreater(contrast(ink, fill), 7, (name, fill))

    def test_a_page_has_the_picture_the_mesh_and_what_each_member_holds(self):
        mesh = distag.Mesh((2, 2, 2), ("z", "y", "x"), ranks=range(3, 11))
        page = parse_page(mesh.visualize((("z", "x"), None), (5, 3), format="html", label="<b>"))
        self.assertEqual(len(list(page.iter(SVG + "svg"))), 1)
        grids = [table for table in page.iter(HTML + "table") if table.get("class") == "mesh"]
        self.assertEqual([grid.find(HTML + "caption").text for grid in grids],
                         ["z is 0, rows: y, columns: x", "z is 1, rows: y, columns: x"])
        self.assertEqual([[cell.text for cell in row.iter(HTML + "td")] for grid in grids for row in grid.iter(HTML + "tr")],
                         [["3", "4"], ["5", "6"], ["7", "8"], ["9", "10"]])
        boxes = json.loads(mesh.visualize((("z", "x"), None), (5, 3), format="json"))["boxes"]
        held = {rank: box for box in boxes for rank in box["members"]}
        rows = member_rows(page)
        self.assertEqual(rows.pop(0), ["member", "z", "y", "x", "elements", "count"])
        self.assertEqual(len(rows), 8)
        for position, (rank, z, y, x, elements, count) in enumerate(rows):
            self.assertEqual((int(rank), int(z), int(y), int(x)),
                             (position + 3, position // 4, position // 2 % 2, position % 2))
            box = held.get(int(rank))
            spans = [f"{begin}:{begin + count}" for begin, count in zip(box["offset"], box["extent"])] if box else ["none"]
            self.assertEqual(elements, ", ".join(spans))
            self.assertEqual(int(count), box["extent"][0] * box["extent"][1] if box else 0)
        self.assertEqual(rows[-1][-2:], ["none", "0"])

    def test_pages_without_a_mesh_without_a_shape_and_of_all_sizes(self):
        page = parse_page(distag.visualize_sharding("{replicated}", (4,), format="html"))
        self.assertEqual(page.find(f"{HTML}body/{HTML}p").text, "Each member holds all of it.")
        page = parse_page(distag.visualize_sharding("{devices=[2]1,0}", format="html"))
        self.assertEqual(member_rows(page)[1:], [["1", "0", "0:1", "1"], ["0", "1", "1:2", "1"]])
        self.assertEqual(member_rows(page)[0][-2:], ["blocks", "count"])
        page = parse_page(distag.Mesh((2,), ("x",)).visualize((), (), format="html"))
        self.assertEqual(member_rows(page)[1:], [["0", "0", "the whole", "1"], ["1", "1", "the whole", "1"]])
        for spec, shape in (("{devices=[64,64]<=[4096]}", (10 ** 8, 10 ** 8)), ("{devices=[4096]<=[4096]}", (3,))):
            text = distag.visualize_sharding(spec, shape, format="html", label="\"" * 127)
            self.assertLess(len(text.encode()), 4 << 20)
            self.assertEqual(len(member_rows(parse_page(text))), 4097)

    def test_pages_can_be_read_and_name_nothing_outside(self):
        text = distag.visualize_sharding("{devices=[2]0,1}", format="html", label="<script>alert(1)</script>")
        pages = re.findall(r"body\{background:(#\w{6});color:(#\w{6})", text)
        self.assertEqual(len(pages), 2)
        for paper, ink in pages:
            self.assertGreater(contrast(paper, ink), 7)
        self.assertEqual(re.findall(r"https?://[^\"]*", text),
                         ["http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg"])
        self.assertNotRegex(text, r"href|url\(|@import|<script|<link|\bon\w+=")

    def test_nothing_outside_is_named(self):
        text = distag.visualize_sharding("{devices=[2]0,1}", format="svg")
        self.assertEqual(re.findall(r"https?://[^\"]*", text), ["http://www.w3.org/2000/svg"])
        self.assertNotRegex(text, r"href|url\(|@import|<script|\bon\w+=")


if __name__ == "__main__":
    unittest.main()
