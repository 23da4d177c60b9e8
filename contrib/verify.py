#!/usr/bin/env python3
"""Verifies a navra blackbox in SQLite, by docs/blackbox.md alone: it shares nothing with navra. It writes nothing, and needs
Python 3.8 or later with SQLite 3.37 or later. Exit status: 0 whole, 1 not whole, 2 it could not be verified."""
import argparse, base64, datetime, functools, hashlib, itertools, json, pathlib, re, sqlite3, sys
class Bad(ValueError): pass  # what is wrong
def need(ok, why, *values):
    if not ok: raise Bad(why % values)
def sha256(*parts): return hashlib.sha256(b"".join(parts)).digest()

# The forms of values: a pattern for a text, a range for a number, a list of form and limit, members in their order.
TEXT, HASH, TIME = ".*", "[0-9a-f]{64}", r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z"
UNSIGNED, SIGNED = range(2**64), range(-2**63, 2**63)
COUNTS = [{"name": TEXT, "n": SIGNED}, 64]
CHANGE = r"checkpoint key changed from (\S+) to (\S+), signed (\S+) (\S+)"
PAYLOADS = [{"name": TEXT, "length": SIGNED, "stored_sha256": HASH, "whole_sha256": HASH}, 64]
texts = lambda names: dict.fromkeys(names.split(), TEXT)
ENTRY = {
    "seq": UNSIGNED, "time": TIME, **texts("kind ref"), "cause": UNSIGNED,
    **texts("principal actor auth role session scope transport era version upstream method target request_id trace"),
    **texts("verdict stage reason outcome"), "findings": COUNTS, "notes": COUNTS,
    **texts("label_before label_after policy approval"), "durations_us": COUNTS, "payloads": PAYLOADS, "prev": HASH}

def encode(v, form):  # a value of json.loads as it must be written
    if type(form) is dict:
        need(type(v) is dict and list(v) == list(form), "members are missing, unknown or out of order")
        return "{%s}" % ",".join('"%s":%s' % (name, encode(v[name], form[name])) for name in form)
    if type(form) is list:
        need(type(v) is list and len(v) <= form[1], "a list is none, or too long")
        return "[%s]" % ",".join(encode(item, form[0]) for item in v)
    if type(form) is range:
        need(type(v) is int and v in form, "a number is none, or out of range")
        return str(v)
    need(type(v) is str and len(v.encode()) <= 4096 and re.fullmatch(form, v, re.DOTALL), "a text is none, too long or not of its form")
    return '"%s"' % re.sub(r'["\\\x00-\x1f\x7f]', lambda m: "\\" + m[0] if m[0] in '"\\' else "\\u%04x" % ord(m[0]), v)

def decode(body):
    try:
        entry = json.loads(body.decode("utf-8"))
        need(encode(entry, ENTRY).encode() == body, "it would be written otherwise")
        year, *rest = map(int, re.split("[-T:.]", entry["time"])[:6])
        datetime.datetime(2000 + year % 400, *rest)  # the calendar repeats itself, and datetime knows no year 0
    except (ValueError, RecursionError) as e: raise Bad("its body is not in the one encoding: %s" % e)
    return entry
def cut(packed):  # what stands behind each length, an unsigned LEB128
    while packed:
        length, size = 0, 0
        while size == 0 or packed[size - 1] > 127:
            need(size < min(len(packed), 10), "its payloads are damaged")
            length, size = length | (packed[size] & 127) << 7 * size, size + 1
        need(length <= len(packed) - size, "its payloads are damaged")
        yield packed[size:size + length]
        packed = packed[size + length:]
def entries(seq, *row):  # number, body, hash and packed payloads of each entry of a row, whose number is that of the last
    bodies, hashes, payloads = (column if type(column) is bytes else b"" for column in row)
    n, packed = len(hashes) // 32 if 64 <= len(hashes) < 257 * 32 else 1, cut(memoryview(payloads))
    for i, body in enumerate((bodies.split(b"\n", n - 1) + [b""] * n)[:n]):
        part = payloads if n == 1 else next(packed, None)
        need(n == 1 or not payloads or part is not None and (i < n - 1 or next(packed, None) is None), "its payloads are damaged")
        yield seq - n + 1 + i, body, hashes[32 * i:32 * i + 32 if i < n - 1 else None], part
def check_entry(want, prev, seq, body, hash, packed):
    need(seq == want, "it is missing: entry %d stands in its place", seq)
    need(sha256(b"\0", body) == hash, "it was edited: it does not have its hash")
    entry = decode(body)
    need(entry["seq"] == seq, "it was moved: it says that it is number %d", entry["seq"])
    need(entry["prev"] == prev.hex(), "it does not follow the one before it")
    parts = list(itertools.islice(cut(memoryview(packed or b"")), 4 * 64 + 1))
    need(len(parts) % 4 == 0, "its payloads are damaged")
    for name, stored, salt, whole_salt in zip(*[iter(parts)] * 4):
        proofs = {p["stored_sha256"] for p in entry["payloads"] if p["name"].encode() == name}
        same = len(salt) == len(whole_salt) == 16 and proofs == {sha256(salt, stored).hex()}
        need(same, "its payload %r is not what was committed to, or there twice", bytes(name))
        entry["payloads"] = [p for p in entry["payloads"] if p["name"].encode() != name]

def root_of(frontier):  # the RFC 6962 root over perfect subtrees, which stand from left to right
    return base64.b64encode(functools.reduce(lambda right, left: sha256(b"\1", left, right), reversed(frontier or [sha256()]))).decode()
def check_note(size, note, root, key):
    body, _, signatures = note.decode("utf-8").rpartition("\n\n")
    lines = body.split("\n")
    need(len(lines) == 3 and re.fullmatch(r"navra/\S+", lines[0]), "its note is not one of navra's")
    need(lines[1:] == [str(size), root], "its note says size %s and root %s, the entries have root %s", *lines[1:], root)
    need(re.fullmatch(r"(— \S+ \S+\n)+", signatures), "its note is not signed")
    need(not key or any(k(name, sig, body + "\n") for name, sig in re.findall(r"— (\S+) (\S+)\n", signatures) for k in key), "the key did not sign its note")
def verifier_key(s):  # what says whether a signature line is by the verifier key NAME+HASH+BASE64
    name, hash, public = s.split("+", 2)
    public = base64.b64decode(public, validate=True)
    need(len(public) == 33 and public[0] == 1 and sha256(name.encode(), b"\n", public)[:4].hex() == hash, "no Ed25519 key")
    try: from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError: raise argparse.ArgumentTypeError("signatures cannot be checked without the module cryptography")
    def signed(by, signature, body):
        try:
            signature = base64.b64decode(signature, validate=True)
            Ed25519PublicKey.from_public_bytes(public[1:]).verify(signature[4:], body.encode())
            return by == name and signature[:4].hex() == hash
        except Exception: return False  # it is no base64, or not by this key
    signed.name, signed.key = name, s
    return signed
def keys_from(db, key):  # the keys that entries which both keys have signed lead to from one, forward and back
    changes, known = [], {key.key: key}
    rows = db.execute("SELECT CAST(bodies AS BLOB) FROM entries WHERE instr(CAST(bodies AS BLOB), CAST('checkpoint key changed from ' AS BLOB))")
    for body in (body for bodies, in rows for body in bodies.split(b"\n")):
        try:
            entry = decode(body)
            m = re.fullmatch(CHANGE, entry["reason"]) if entry["kind"] == "event" else None
            pair = [verifier_key(k) for k in m.group(1, 2)] if m else []
        except ValueError: continue  # verify() says what is wrong with it
        if pair and all(k(k.name, sig, "navra checkpoint key change\n%s\n%s\n" % m.group(1, 2)) for k, sig in zip(pair, m.group(3, 4))):
            changes.append({k.key: k for k in pair})
    for pair in changes * len(changes):
        if known.keys() & pair.keys(): known.update(pair)
    return list(known.values())

MADE = "SELECT user_version, (SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND lower(name) IN ('entries', 'checkpoints')) FROM pragma_user_version"
ODD = "SELECT 1 FROM (SELECT seq AS n FROM entries UNION ALL SELECT size FROM checkpoints) WHERE typeof(n) <> 'integer'"  # a number that is none
def verify(db, key):
    notes = db.execute("SELECT size, CAST(note AS BLOB) FROM checkpoints ORDER BY size DESC").fetchall()
    n, prev, frontier, checkpoints, at = 0, bytes(32), [], len(notes), "entry 1"
    try:
        rows = db.execute("SELECT seq, bodies, hashes, payloads FROM entries ORDER BY seq")
        for entry in (entry for row in rows for entry in entries(*row)):
            check_entry(n + 1, prev, *entry)
            n, prev, node = n + 1, entry[2], entry[2]
            for _ in range((n & -n).bit_length() - 1):  # two perfect subtrees of one size become one
                node = sha256(b"\1", frontier.pop(), node)
            frontier.append(node)
            while notes and notes[-1][0] == n:
                at = "checkpoint of size %d" % n
                check_note(n, notes.pop()[1] or b"", root_of(frontier), key)
            at = "entry %d" % (n + 1)
        at = "checkpoint of size %d" % (notes or [[0]])[-1][0]
        need(not notes, "it does not fit %d entries: the log was cut", n)
    except ValueError as e: raise Bad("%s: %s" % (at, e))
    return n, checkpoints, root_of(frontier)

def main():
    usage = argparse.ArgumentParser(description="Verify a navra blackbox in SQLite.")
    usage.add_argument("database")
    usage.add_argument("--key", type=verifier_key, metavar="NAME+HASH+BASE64", help="check the signatures of checkpoints, too")
    args = usage.parse_args()
    try:
        db = sqlite3.connect(pathlib.Path(args.database).absolute().as_uri() + "?mode=ro", uri=True, isolation_level=None)
        db.execute("BEGIN")  # one state of the database for all that is read
        db.text_factory = bytes
        if db.execute(MADE).fetchone() != (3, 2) or db.execute(ODD).fetchone(): raise sqlite3.Error("it is not a navra database of schema 3")
        n, checkpoints, root = verify(db, args.key and keys_from(db, args.key))
    except Bad as e: return print(e) or 1
    except sqlite3.Error as e: return print("%s: %s%s" % (args.database, e, ": it is not there, or its folder cannot be written: then copy it, and FILE-wal if there is one" if re.search("open|readonly", str(e)) else ""), file=sys.stderr) or 2
    print("whole: %d entries, root %s" % (n, root))
    return print("checkpoints: %d, signatures %s" % (checkpoints, "checked" if args.key else "not checked"), file=sys.stderr) or 0

if __name__ == "__main__": sys.exit(main())
