"""Examples of bundles and links for the OpenAPI document; a test reads each with its type."""

from __future__ import annotations

from typing import Any

from rota.api.document.examples import AT

BUNDLE_ID = "019a85c7-5555-7666-8777-988899900011"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

BUNDLE: dict[str, Any] = {
    "bundle_id": BUNDLE_ID,
    "name": "billing.tar.gz",
    "tenant": "default",
    "size": 48211,
    "sha256": SHA256,
    "format": "tar",
    "created_at": AT,
    "used_at": AT,
}
LINK: dict[str, Any] = {
    "url": "https://files.s3.eu-central-1.amazonaws.com/outputs/019a/x?X-Amz-Signature=…",
    "signed": True,
    "expires_in": 900,
}
