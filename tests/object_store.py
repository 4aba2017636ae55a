"""As much of S3 as reading needs, on the loopback interface; every request is kept."""

import re
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 3  # objects of a listing: S3 has 1000, and more pages of them


class Bucket:
    """`objects` by key: content and time of change; `requests` as (verb, key, range, signature)."""

    def __init__(self, name="pool"):
        self.name, self.objects, self.requests = name, {}, []
        self.refusing = None  # a status for whatever is asked
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def options(self):
        return f"endpoint_override=127.0.0.1:{self._server.server_port}&scheme=http&region=here"

    def uri(self, key, part=None):
        """Where it lies, to be read without credentials."""
        return (
            f"s3://anonymous@{self.name}/{key}" + (f":{part}" if part else "") + f"?{self.options}"
        )

    def put(self, key, content, changed=1_700_000_000):
        self.objects[key] = (bytes(content), changed)

    def upload(self, path, key=None):
        """A file, or a folder with all that is in it."""
        path = Path(path)
        key = path.name if key is None else key
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                below = file.relative_to(path).as_posix() if path.is_dir() else ""
                self.put("/".join(filter(None, (key, below))), file.read_bytes())
        return self.uri(key)

    def _handler(self):
        bucket = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # head and body go together, or TCP waits between them

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                where = urlsplit(self.path)
                name, _, key = unquote(where.path).lstrip("/").partition("/")
                span = self.headers.get("Range")
                signature = self.headers.get("Authorization", "")
                bucket.requests.append((self.command, key, span, signature))
                if bucket.refusing:
                    self._answer(bucket.refusing, _error("AccessDenied"))
                elif name != bucket.name:
                    self._answer(404, _error("NoSuchBucket"))
                elif not key:
                    self._answer(200, bucket._listed(parse_qs(where.query, True)).encode())
                elif key in bucket.objects:
                    content, changed = bucket.objects[key]
                    self._object(content, changed, span)
                else:
                    self._answer(404, _error("NoSuchKey"))

            def _object(self, content, changed, span):
                about = {"Last-Modified": formatdate(changed, usegmt=True), "ETag": '"x"'}
                if span is None:
                    self._answer(200, content, about)
                    return
                first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", span).groups())
                about["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
                self._answer(206, content[first : last + 1], about)

            def _answer(self, status, content, about=()):
                self.send_response(status)
                for name, value in dict(about).items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

        return Handler

    def _listed(self, query):
        """ListObjectsV2: a page of the keys and of the folders below a prefix."""
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        most = min(PAGE, int(query.get("max-keys", [PAGE])[0]))
        after = query.get("continuation-token", [""])[0]
        entries = {}
        for key in sorted(self.objects):
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition(delimiter or "\0")
                entries[prefix + head + slash] = not slash
        names = [name for name in entries if name > after]
        body = "".join(self._entry(name, entries[name]) for name in names[:most])
        more = len(names) > most
        last = escape(names[:most][-1]) if names else ""
        return (
            '<?xml version="1.0"?><ListBucketResult>'
            f"<Name>{self.name}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(names[:most])}</KeyCount><MaxKeys>{most}</MaxKeys>"
            f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            f"<NextContinuationToken>{last if more else ''}</NextContinuationToken>"
            f"{body}</ListBucketResult>"
        )

    def _entry(self, name, is_key):
        if not is_key:
            return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
        size = len(self.objects[name][0])
        return (
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size><ETag>x</ETag>"
            "<LastModified>2023-11-14T22:13:20.500Z</LastModified></Contents>"
        )


def _error(code):
    return (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    )
