"""The calls about files: what jobs leave behind, and what is uploaded for them."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api.document import examples
from rota.api.document import file_examples as shown
from rota.api.door.roles import Rule
from rota.api.jobs import artifacts, bundles
from rota.api.jobs.downloads import OCTETS
from rota.api.routes import HeaderSpec, Operation
from rota.wire.bundles import BundlePage, BundleUploadView, BundleView, LinkView, UploadView
from rota.wire.executions import ArtifactView

_FILE = "/executions/{execution_id}/artifacts/{name}"
DEEP = (_FILE,)
"""Paths whose last word may have slashes in it."""
_RANGE = {"Range": HeaderSpec("bytes=0-99")}

ARTIFACTS: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/executions/{execution_id}/artifacts",
        summary="List an execution's output files",
        handle=artifacts.list_artifacts,
        tag="Executions",
        rule=Rule.READ,
        anywhere=True,
        answer=artifacts.ArtifactPage,
        errors=(404,),
        examples={"answer": {"items": [examples.ARTIFACT], "next_cursor": None}},
    ),
    Operation(
        method="GET",
        path=_FILE,
        summary="Fetch an output file",
        handle=artifacts.get_artifact,
        tag="Executions",
        rule=Rule.READ,
        anywhere=True,
        gives=OCTETS,
        endless=True,
        headers=_RANGE,
        also={206: None},
        errors=(404, 410, 416, 422),
        description="`Repr-Digest` has the SHA-256 of the whole. With `Range` a part of it (206). "
        "The slashes in a name such as `plots/a.png` are best encoded: `plots%2Fa.png`.",
        examples={"answer": "%PDF-1.7"},
    ),
    Operation(
        method="GET",
        path=f"{_FILE}/link",
        summary="Where to fetch an output file",
        handle=artifacts.link_artifact,
        tag="Executions",
        rule=Rule.READ,
        anywhere=True,
        answer=LinkView,
        errors=(404,),
        description="A signed link to the object storage where that gives one, good for a quarter "
        "of an hour; else the path on this server.",
        examples={"answer": shown.LINK},
    ),
    Operation(
        method="PUT",
        path=_FILE,
        summary="Keep an output file",
        handle=artifacts.put_artifact,
        tag="Executions",
        rule=Rule.WORK,
        repeatable=True,
        traffic=True,
        query=artifacts.PutArtifactQuery,
        body=bytes,
        takes=OCTETS,
        streams_in=True,
        answer=ArtifactView,
        errors=(404,),
        description="Raw bytes, up to 16 GiB (1 GiB where there is no object storage). One of the "
        "same name is replaced. With `sha256` it is checked; an upload that broke off goes on from "
        "the `offset` that the call below tells.",
        examples={"body": "test", "answer": examples.ARTIFACT},
    ),
    Operation(
        method="GET",
        path=f"{_FILE}/upload",
        summary="How much of an output file has come",
        handle=artifacts.show_artifact_upload,
        tag="Executions",
        rule=Rule.WORK,
        query=artifacts.UploadQuery,
        answer=UploadView,
        errors=(404,),
        examples={"answer": {"offset": 8388608}},
    ),
    Operation(
        method="GET",
        path="/executions/{execution_id}/bundles/{bundle_id}",
        summary="What a job's bundle is",
        handle=bundles.show_execution_bundle,
        tag="Executions",
        rule=Rule.WORK,
        anywhere=True,
        traffic=True,
        answer=BundleView,
        errors=(404,),
        description="For the worker that runs the job: 404 unless the bundle is of its tenant.",
        examples={"answer": shown.BUNDLE},
    ),
    Operation(
        method="GET",
        path="/executions/{execution_id}/bundles/{bundle_id}/content",
        summary="Fetch a job's bundle",
        handle=bundles.get_execution_bundle,
        tag="Executions",
        rule=Rule.WORK,
        anywhere=True,
        traffic=True,
        gives=OCTETS,
        endless=True,
        headers=_RANGE,
        also={206: None},
        errors=(404, 410, 416),
        examples={"answer": "#!/bin/sh"},
    ),
)

BUNDLES: Sequence[Operation] = (
    Operation(
        method="POST",
        path="/bundles",
        summary="Upload a bundle",
        handle=bundles.push_bundle,
        tag="Bundles",
        rule=Rule.SUBMIT,
        repeatable=True,
        query=bundles.PushQuery,
        body=bytes,
        takes=OCTETS,
        streams_in=True,
        answer=BundleView,
        status=201,
        also={200: BundleView, 202: UploadView},
        errors=(415,),
        description="A program, a script or an archive (zip, tar, tar.gz, tar.bz2, tar.xz), up to "
        "4 GiB of raw bytes. The same content again is the same bundle (200). With `sha256` it is "
        "checked. With `size` too it may come in pieces, each at its `offset` (202 until the "
        "last); what broke off goes on for a day.",
        examples={"body": "#!/bin/sh", "answer": shown.BUNDLE},
    ),
    Operation(
        method="GET",
        path="/bundles",
        summary="List bundles, newest first",
        handle=bundles.list_bundles,
        tag="Bundles",
        rule=Rule.READ,
        anywhere=True,
        query=bundles.BundlesQuery,
        answer=BundlePage,
        examples={"answer": {"items": [shown.BUNDLE], "next_cursor": None}},
    ),
    Operation(
        method="GET",
        path="/bundles/uploads/{sha256}",
        summary="How much of a bundle has come",
        handle=bundles.show_bundle_upload,
        tag="Bundles",
        rule=Rule.SUBMIT,
        query=bundles.BundleUploadQuery,
        answer=BundleUploadView,
        examples={"answer": {"offset": 8388608, "bundle": None}},
    ),
    Operation(
        method="GET",
        path="/bundles/{bundle_id}",
        summary="Show a bundle",
        handle=bundles.show_bundle,
        tag="Bundles",
        rule=Rule.READ,
        anywhere=True,
        answer=BundleView,
        errors=(404,),
        examples={"answer": shown.BUNDLE},
    ),
    Operation(
        method="DELETE",
        path="/bundles/{bundle_id}",
        summary="Remove a bundle",
        handle=bundles.drop_bundle,
        tag="Bundles",
        rule=Rule.SUBMIT,
        status=204,
        errors=(404,),
        description="Jobs that name it and have not begun will fail, and say why.",
    ),
    Operation(
        method="GET",
        path="/bundles/{bundle_id}/content",
        summary="Fetch a bundle",
        handle=bundles.get_bundle,
        tag="Bundles",
        rule=Rule.READ,
        anywhere=True,
        gives=OCTETS,
        endless=True,
        headers=_RANGE,
        also={206: None},
        errors=(404, 410, 416),
        examples={"answer": "#!/bin/sh"},
    ),
)
