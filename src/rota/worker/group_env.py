"""Environment variables that tell a member of a job group (array or gang) about its group."""

from __future__ import annotations

from rota.wire.groups import PlaceView, RankView

GROUP_VARIABLES = (
    "ROTA_ARRAY_ID",
    "ROTA_ARRAY_INDEX",
    "ROTA_ARRAY_COUNT",
    "ROTA_GANG_ID",
    "ROTA_GANG_INDEX",
    "ROTA_GANG_SIZE",
    "ROTA_GANG_HOSTS",
)


def group_variables(array: PlaceView | None, gang: RankView | None) -> dict[str, str]:
    """Returns the variables; empty for a job that is in no group."""
    variables: dict[str, str] = {}
    if array is not None:
        variables.update(
            ROTA_ARRAY_ID=array.array_id,
            ROTA_ARRAY_INDEX=str(array.index),
            ROTA_ARRAY_COUNT=str(array.count),
        )
    if gang is not None:
        variables.update(
            ROTA_GANG_ID=gang.gang_id,
            ROTA_GANG_INDEX=str(gang.index),
            ROTA_GANG_SIZE=str(gang.size),
            ROTA_GANG_HOSTS=",".join(gang.hosts),
        )
    return variables
