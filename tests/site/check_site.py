"""Opens the site in a headless Chromium with a phone's screen: follows all links from its first page, and looks at each
page's layout. usage: check_site.py FOLDER [SCREENSHOTS]"""
import os
import sys
from urllib.parse import unquote, urldefrag

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
LEAST_PAGES = 100
# Pages that a reader must find from the first one, by the end of their address.
MUST_REACH = ("index.html", "distag_8h.html", "classdistag_1_1tensor.html", "functions_8hpp.html",
              "docs_embedding.html", "docs_errors.html", "docs_hosts.html", "docs_launchers.html", "docs_spmd.html", "docs_threads.html",
              "bindings_cpp_readme.html", "bindings_python_readme.html", "namespacedistag_1_1autograd.html")
PROBE = """
const wide = [...document.querySelectorAll('.contents *')].find(each => each.getBoundingClientRect().right > innerWidth + 1 &&
    !each.closest('.contents table, .contents pre, .contents .fragment, .memproto'));
const squeezed = [...document.querySelectorAll('.contents *')].find(each => {
  const box = each.getBoundingClientRect();
  const text = [...each.childNodes].filter(node => node.nodeType === 3).map(node => node.data.trim()).join('');
  return text.length > 3 && box.width > 0 && box.width < 30 && box.height > 60;
});
return {
  title: document.title,
  text: document.body.innerText.length,
  width: document.documentElement.scrollWidth,
  wide: wide ? wide.outerHTML.slice(0, 200) : null,
  squeezed: squeezed ? squeezed.outerHTML.slice(0, 200) : null,
  size: parseFloat(getComputedStyle(document.querySelector('.contents p, .contents') || document.body).fontSize),
  links: [...document.querySelectorAll('a[href]')].map(each => each.getAttribute('href')),
  anchors: [...document.querySelectorAll('[id], a[name]')].map(each => each.id || each.name),
  images: [...document.images].filter(each => each.complete && !each.naturalWidth).map(each => each.getAttribute('src')),
};
"""


def open_browser():
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    return browser


def look_at(browser, path):
    """What a page shows, and what is wrong with it alone."""
    browser.get("file://" + path)
    page = browser.execute_script(PROBE)
    wrong = [f"the console says {entry['message']}" for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    if page["width"] > PHONE["width"]:
        wrong.append(f"it is {page['width']} wide on a screen of {PHONE['width']}")
    if page["wide"]:
        wrong.append(f"it has a part beyond the screen: {page['wide']}")
    if page["squeezed"]:
        wrong.append(f"it has a column of single letters: {page['squeezed']}")
    if page["text"] < 20 or not page["title"]:
        wrong.append("it is empty")
    if page["size"] < 12:
        wrong.append(f"its letters are {page['size']} px high")
    wrong += [f"its image {source} does not load" for source in page["images"]]
    return page, wrong


def targets(path, page):
    """File and anchor of each link that stays within the site; links that run a script are none."""
    for link in page["links"]:
        if link.startswith(("http://", "https://", "mailto:", "javascript:")):
            continue
        place, anchor = urldefrag(link)
        yield os.path.normpath(os.path.join(os.path.dirname(path), unquote(place))) if place else path, unquote(anchor)


def crawl(browser, folder):
    """Every page that can be reached, and all complaints."""
    pages, links, complaints = {}, [], []
    waiting = [os.path.join(folder, "index.html")]
    while waiting:
        path = waiting.pop()
        if path in pages:
            continue
        pages[path], wrong = look_at(browser, path)
        complaints += [f"{os.path.basename(path)}: {each}" for each in wrong]
        for target, anchor in targets(path, pages[path]):
            links.append((path, target, anchor))
            if not target.startswith(folder + os.sep) or not os.path.isfile(target):
                complaints.append(f"{os.path.basename(path)}: there is no {target}")
            elif target.endswith(".html") and target not in pages:
                waiting.append(target)
    for path, target, anchor in links:
        if anchor and target in pages and anchor not in pages[target]["anchors"]:
            complaints.append(f"{os.path.basename(path)}: there is no {os.path.basename(target)}#{anchor}")
    return pages, links, sorted(set(complaints))


def main():
    folder = os.path.abspath(sys.argv[1])
    browser = open_browser()
    try:
        pages, links, complaints = crawl(browser, folder)
        for name in MUST_REACH if len(sys.argv) > 2 else ():
            browser.get(f"file://{folder}/{name}")
            browser.save_screenshot(os.path.join(sys.argv[2], name.replace(".html", ".png")))
    finally:
        browser.quit()
    names = {os.path.basename(path) for path in pages}
    complaints += [f"{name} cannot be reached" for name in MUST_REACH if name not in names]
    if len(pages) < LEAST_PAGES:
        complaints.append(f"only {len(pages)} pages can be reached")
    print("\n".join(complaints))
    print(f"{len(pages)} pages, {len(links)} links, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
