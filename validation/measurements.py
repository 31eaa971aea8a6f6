"""Rows of measurements, schema refit.measurements/1 of docs/formats.md: beside each the value that
the code assumes, where that is stated, and a verdict. Shared by gpu-check and two-nodes."""
import datetime
import json
import os
import pathlib
import subprocess

SCHEMA = "refit.measurements/1"
TOLERANCE = 0.25  # a measured value this near to the assumed one, either way, is as assumed


def matches(pattern, parameters):
    return all(parameters.get(key) == value for key, value in pattern.items())


class Assumed:
    """What the code assumes of rows of a kind: `value`, in the row's unit; None is only named."""

    def __init__(self, what, name, where, value, pattern=None, better=None):
        self.what, self.name, self.where, self.value = what, name, where, value
        self.pattern = pattern or {}
        self.better = better  # "less" or "more": a miss on that side is none

    def fits(self, row):
        return row["what"] == self.what and matches(self.pattern, row["parameters"])


def verdict(measured, assumed, unit, better):
    """In words; `measured` and `assumed` are of one unit."""
    if assumed is None:
        return None
    if unit == "share":
        return "as assumed" if measured == assumed else "not as assumed"
    if assumed == 0:
        return "as assumed" if measured == 0 else "not as assumed"
    ratio = measured / assumed
    if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE:
        return "as assumed"
    if (better == "less" and ratio < 1) or (better == "more" and ratio > 1):
        return "better than assumed"
    return "%.2g times what is assumed" % ratio


def judge(rows, assumptions, stand_in):
    """Adds `assumed` and `verdict` to each row: null where nothing is assumed, and the verdict on
    the stand-in. The first assumption that fits a row counts."""
    for row in rows:
        found = next((each for each in assumptions if each.fits(row)), None)
        row["assumed"], row["verdict"] = None, None
        if found is None:
            continue
        row["assumed"] = {"name": found.name, "where": found.where,
                          "value_" + row["unit"]: found.value}
        if not stand_in:
            row["verdict"] = verdict(row["median_" + row["unit"]], found.value, row["unit"],
                                     found.better)
    return rows


def stated(program, kind, name):
    """Numbers of a profile or a topology, by their keys in refit.profile-summary/1 or
    refit.topology-summary/1."""
    text = subprocess.run([str(program), "show", kind, name, "--json"], check=True,
                          stdout=subprocess.PIPE, timeout=60).stdout
    return {key: entry["value"] for key, entry in json.loads(text).items()
            if isinstance(entry, dict) and "value" in entry}


def document(what, stand_in, device, rows, **more):
    return {"schema": SCHEMA, "what": what, "stand_in": stand_in,
            "date": datetime.date.today().isoformat(), "device": device, **more, "rows": rows}


def write(path, found):
    """Whole or not at all."""
    part = pathlib.Path(str(path) + ".part")
    part.write_text(json.dumps(found, indent=2) + "\n", "utf-8")
    os.replace(part, path)


# ---- the terminal ----


def in_words(value, unit):
    if value is None:
        return "-"
    if unit == "bytes_per_s":
        return "%.4g GB/s" % (value / 1e9)
    if unit == "bytes":
        return "%.4g MB" % (value / 1e6)
    if unit == "share":
        return "%.2f" % value
    if value and value < 1e-3:
        return "%.4g us" % (value * 1e6)
    return "%.4g ms" % (value * 1e3) if value < 1 else "%.4g s" % value


def print_rows(rows):
    """Kind by kind: a line per row, with parameters, value, spread and verdict; what is assumed
    stands above the rows that it is assumed of."""
    for kind in dict.fromkeys(row["what"] for row in rows):
        print("\n%s" % kind)
        last = None
        for row in (row for row in rows if row["what"] == kind):
            unit, assumed = row["unit"], row["assumed"]
            if assumed is not None and assumed != last:
                print("  assumed: %s, %s (%s)" % (in_words(assumed["value_" + unit], unit),
                                                  assumed["name"], assumed["where"]))
            last = assumed
            parameters = " ".join("%s=%s" % item for item in row["parameters"].items())
            line = "    %-70s %12s" % (parameters, in_words(row["median_" + unit], unit))
            if row["times"] > 1 and unit != "share":
                line += "  (%s to %s)" % (in_words(row["least_" + unit], unit),
                                          in_words(row["most_" + unit], unit))
            print(line + ("  %s" % row["verdict"] if row["verdict"] is not None else ""))
