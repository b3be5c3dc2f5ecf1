#!/usr/bin/env python3
"""Makes tests/golden/base/s3_signatures.json: signatures of S3 requests by botocore (pip install botocore).

`--check` compares with the file instead of writing."""
import argparse
import datetime
import hashlib
import json
import sys
from pathlib import Path
from unittest import mock
from urllib.parse import quote

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "base" / "s3_signatures.json"
NOW = datetime.datetime(2026, 11, 22, 6, 7, 8, tzinfo=datetime.timezone.utc)
CASES = [
    # method, host, key, query, headers, body, token
    ("GET", "bucket.s3.eu-central-1.amazonaws.com", "a/b.txt", [], {}, "", ""),
    ("GET", "127.0.0.1:9000", "bucket/a b+c/\u00e9~(1)'!*.mds", [], {}, "", "token/with+signs=="),
    ("GET", "127.0.0.1:9000", "bucket", [("prefix", "a/b c+d&e=f%"), ("list-type", "2"), ("continuation-token", "z/+=="), ("Upper", "1")], {}, "", ""),
    ("PUT", "127.0.0.1:9000", "bucket/x", [("uploadId", "up/load+id="), ("partNumber", "12")], {}, "part of a file", "token"),
    ("POST", "127.0.0.1:9000", "bucket/x", [("uploads", "")], {"x-amz-checksum-algorithm": "SHA256"}, "", ""),
    ("DELETE", "storage.example.org", "bucket/a//b/", [], {}, "", ""),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    cases = []
    for method, host, key, query, headers, body, token in CASES:
        url = f"http://{host}/{quote(key, safe='/~')}"
        if query:
            url += "?" + "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in query)
        request = AWSRequest(method=method, url=url, data=body.encode(), headers=dict(headers))
        digest = hashlib.sha256(body.encode()).hexdigest()
        request.context["payload_signing_enabled"] = True
        request.context["client_config"] = None
        request.headers["X-Amz-Content-SHA256"] = digest
        credentials = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", token or None)
        signer = botocore.auth.S3SigV4Auth(credentials, "s3", "eu-central-1")
        with mock.patch.object(botocore.auth, "get_current_datetime", lambda *_, **__: NOW.replace(tzinfo=None)):
            with mock.patch.object(signer, "payload", lambda *_: digest):
                signer.add_auth(request)
        cases.append({"method": method, "host": host, "key": key, "query": query, "headers": headers, "body": body, "token": token,
                      "date": request.headers["X-Amz-Date"], "authorization": request.headers["Authorization"]})
    text = json.dumps({"time": int(NOW.timestamp()), "access_key": "AKIDEXAMPLE", "secret_key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                       "region": "eu-central-1", "cases": cases}, indent=1, ensure_ascii=True) + "\n"
    if not check:
        GOLDEN.write_text(text)
        return 0
    same = GOLDEN.read_text() == text
    print(f"{GOLDEN.name}: {len(cases)} signatures, {'the same' if same else 'DIFFERENT'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
