"""The calls about alerts and who is told."""

from __future__ import annotations

from collections.abc import Sequence

from rota.api import alert_examples as examples
from rota.api import alerts
from rota.api.paging import PageQuery
from rota.api.roles import Rule
from rota.api.routes import Operation
from rota.wire.alerts import (
    AlertPage,
    AlertSpec,
    AlertView,
    ChannelPage,
    ChannelSpec,
    ChannelTrial,
    ChannelView,
    NoticePage,
    SilenceSpec,
)

ALERTS: Sequence[Operation] = (
    Operation(
        method="GET",
        path="/alerts",
        summary="List what is watched for, and how it stands",
        handle=alerts.list_alerts,
        tag="Alerts",
        rule=Rule.READ_ALL,
        query=alerts.AlertsQuery,
        answer=AlertPage,
        description="By name. `status=firing,pending` shows what needs attention.",
        examples={"answer": examples.ALERTS},
    ),
    Operation(
        method="GET",
        path="/alerts/{name}",
        summary="Show a rule, and how it stands",
        handle=alerts.show_alert,
        tag="Alerts",
        rule=Rule.READ_ALL,
        answer=AlertView,
        errors=(404,),
        examples={"answer": examples.ALERT},
    ),
    Operation(
        method="PUT",
        path="/alerts/{name}",
        summary="Set a rule",
        handle=alerts.put_alert,
        tag="Alerts",
        rule=Rule.OPERATE,
        body=AlertSpec,
        answer=AlertView,
        errors=(409,),
        description="What is left out is as the condition has it. A name that is no built-in one "
        "must say its `condition`.",
        examples={"body": examples.ALERT_SPEC, "answer": examples.ALERT},
    ),
    Operation(
        method="DELETE",
        path="/alerts/{name}",
        summary="Remove a rule, or make a built-in one as it was at first",
        handle=alerts.delete_alert,
        tag="Alerts",
        rule=Rule.OPERATE,
        status=204,
        errors=(404, 409),
    ),
    Operation(
        method="PUT",
        path="/alerts/{name}/silence",
        summary="Tell nobody of it for a while",
        handle=alerts.silence_alert,
        tag="Alerts",
        rule=Rule.OPERATE,
        body=SilenceSpec,
        answer=AlertView,
        errors=(404,),
        description="If it still fires when the silence is over, that is told then.",
        examples={
            "body": {"for": "3h", "reason": "new machines come at noon"},
            "answer": examples.SILENCED,
        },
    ),
    Operation(
        method="DELETE",
        path="/alerts/{name}/silence",
        summary="Let it tell again",
        handle=alerts.unsilence_alert,
        tag="Alerts",
        rule=Rule.OPERATE,
        answer=AlertView,
        errors=(404,),
        examples={"answer": examples.ALERT},
    ),
    Operation(
        method="GET",
        path="/alert-notices",
        summary="List what was told lately, newest first",
        handle=alerts.list_notices,
        tag="Alerts",
        rule=Rule.READ_ALL,
        query=PageQuery,
        answer=NoticePage,
        examples={"answer": examples.NOTICES},
    ),
    Operation(
        method="GET",
        path="/alert-channels",
        summary="List who is told, by name",
        handle=alerts.list_channels,
        tag="Alerts",
        rule=Rule.READ_ALL,
        query=PageQuery,
        answer=ChannelPage,
        examples={"answer": examples.CHANNELS},
    ),
    Operation(
        method="PUT",
        path="/alert-channels/{name}",
        summary="Set up somebody to tell",
        handle=alerts.put_channel,
        tag="Alerts",
        rule=Rule.ADMINISTER,
        body=ChannelSpec,
        answer=ChannelView,
        errors=(409,),
        description="An `https://` address gets a JSON document, signed if there is a secret. All "
        "others go through the apprise library: `mailto://`, `slack://`, `pagerduty://` and many "
        "more. Neither address nor secret is ever shown again.",
        examples={"body": examples.CHANNEL_SPEC, "answer": examples.CHANNEL},
    ),
    Operation(
        method="DELETE",
        path="/alert-channels/{name}",
        summary="Tell somebody no longer",
        handle=alerts.delete_channel,
        tag="Alerts",
        rule=Rule.ADMINISTER,
        status=204,
        errors=(404, 409),
    ),
    Operation(
        method="POST",
        path="/alert-channels/{name}/test",
        summary="Send a notice that says it is a test",
        handle=alerts.try_channel,
        tag="Alerts",
        rule=Rule.ADMINISTER,
        answer=ChannelTrial,
        errors=(404,),
        examples={"answer": examples.TRIAL},
    ),
)
