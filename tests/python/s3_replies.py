"""What the S3 server of the environment answers to a few signed requests under a prefix, as JSON.

    python tests/python/s3_replies.py s3://bucket/prefix
"""

import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent.parent / "scripts/s3-server"


def script():
    """The functions of `scripts/s3-server`, whose name is no module's."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("s3_server", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("s3_server", loader))
    loader.exec_module(module)
    return module


def main():
    request = script().request
    server = {"endpoint": os.environ["AWS_ENDPOINT_URL"], "access_key": os.environ["AWS_ACCESS_KEY_ID"],
              "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"], "region": os.environ["AWS_REGION"]}
    name = "/" + sys.argv[1].removeprefix("s3://") + "/object"
    absent = {"If-None-Match": "*"}
    created = [request(server, "PUT", name, body, headers=absent)[0] for body in (b"first", b"second")]
    status, _, body = request(server, "GET", name, headers={"Range": "bytes=1-2"})
    deleted = request(server, "DELETE", name)[0]
    print(json.dumps({"created": created, "range": [status, body.decode()], "deleted": deleted,
                      "then": request(server, "GET", name)[0]}))


if __name__ == "__main__":
    main()
