"""Objects in S3, Google Cloud Storage or Azure, through obstore; the only file that knows it.

Credentials, regions and endpoints come from the environment, by the names each cloud's own tools
use (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_KEY
and so on), or from the machine's role.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from rota.store.files.blobs import STORAGE_ID_KEY, BlobMissingError, DownloadLink, check_key
from rota.store.files.spool import SpooledFile
from rota.store.limits import (
    ARTIFACT_PIECE_BYTES,
    CLOUD_PART_BYTES,
    CLOUD_PARTS_AT_ONCE,
    CLOUD_REQUEST_S,
    CLOUD_RETRY_S,
    OBJECT_BYTES_MAX,
)
from rota.store.protocol import StoreError

if TYPE_CHECKING:
    from obstore.store import AzureStore, GCSStore, S3Store

SCHEMES = ("s3", "gs", "az")


def open_cloud(url: str) -> CloudBlobs:
    """The storage that an address such as s3://bucket/prefix names."""
    try:
        import obstore.store as clouds
        from obstore.exceptions import BaseError
    except ImportError:
        raise StoreError(
            f"object storage at {url} needs a package that is not here:"
            " pip install 'rota[objectstore]'"
        ) from None
    try:
        store = clouds.from_url(
            url,
            # In the clear only where the operator's own endpoint says so.
            client_options={"timeout": timedelta(seconds=CLOUD_REQUEST_S), "allow_http": True},
            retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=CLOUD_RETRY_S)},
        )
    except (BaseError, ValueError) as error:
        raise StoreError(f"object storage at {url} cannot be used: {error}") from error
    assert isinstance(store, clouds.S3Store | clouds.GCSStore | clouds.AzureStore), SCHEMES
    return CloudBlobs(url, store)


class CloudBlobs:
    """A bucket, or a part of one."""

    bytes_max = OBJECT_BYTES_MAX

    def __init__(self, url: str, store: S3Store | GCSStore | AzureStore) -> None:
        self._url = url
        self._store = store

    @property
    def where(self) -> str:
        """For people."""
        return self._url

    async def put(self, key: str, draft: SpooledFile) -> None:
        """In parts if it is large; a storage shows it when the last part is there."""
        check_key(key)
        await self._sent(key, draft)

    async def _sent(self, key: str, draft: SpooledFile) -> None:
        from obstore import put_async
        from obstore.exceptions import BaseError

        try:
            await put_async(
                self._store,
                key,
                draft.path,
                chunk_size=CLOUD_PART_BYTES,
                max_concurrency=CLOUD_PARTS_AT_ONCE,
            )
        except (BaseError, OSError) as error:
            raise StoreError(f"{self._url} did not take an object: {error}") from error

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`."""
        from obstore import get_async
        from obstore.exceptions import BaseError

        check_key(key)
        if start >= end:
            return _nothing()
        try:
            found = await get_async(self._store, key, options={"range": (start, end)})
        except (FileNotFoundError, BaseError) as error:
            if _is_missing(error):
                raise BlobMissingError(f"{self._url} has no object {key}") from None
            raise StoreError(f"{self._url} did not give an object: {error}") from error
        return self._pieces(found.stream(ARTIFACT_PIECE_BYTES), end - start)

    async def _pieces(self, stream: AsyncIterator[bytes], left: int) -> AsyncIterator[bytes]:
        from obstore.exceptions import BaseError

        try:
            async for piece in stream:
                left -= len(piece)
                yield bytes(piece)
        except BaseError as error:
            raise StoreError(f"{self._url} broke off: {error}") from error
        if left:
            raise StoreError(f"{self._url} has less of an object than was kept")

    async def drop(self, keys: Sequence[str]) -> None:
        """Removes these; those that are not there are no error."""
        from obstore import delete_async
        from obstore.exceptions import BaseError

        for key in keys:
            check_key(key)
            try:
                await delete_async(self._store, key)
            except (FileNotFoundError, BaseError) as error:
                if not _is_missing(error):
                    raise StoreError(f"{self._url} did not remove an object: {error}") from error

    async def link(self, key: str, expires_s: int) -> DownloadLink | None:
        """Signed with the server's own credentials; some of those cannot sign."""
        from obstore import sign_async
        from obstore.exceptions import BaseError

        check_key(key)
        with suppress(BaseError):
            lasts = timedelta(seconds=expires_s)
            return DownloadLink(await sign_async(self._store, "GET", key, lasts), expires_s)
        return None

    async def mark(self, wanted: str) -> str:
        """Says which storage this is; of two who try at once the storage lets one win."""
        from obstore import get_async, put_async
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            with suppress(AlreadyExistsError):
                await put_async(self._store, STORAGE_ID_KEY, wanted.encode(), mode="create")
                return wanted
            found = await get_async(self._store, STORAGE_ID_KEY)
            return bytes(await found.bytes_async()).decode("ascii").strip()
        except (BaseError, OSError) as error:
            raise StoreError(
                f"object storage at {self._url} cannot be used: {error};"
                " check the address, the credentials in the environment and that the bucket exists"
            ) from error

    async def close(self) -> None:
        """Nothing is held."""


def _is_missing(error: Exception) -> bool:
    from obstore.exceptions import NotFoundError

    return isinstance(error, NotFoundError | FileNotFoundError)


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""  # makes it a generator
