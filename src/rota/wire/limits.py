"""Limits of the public contract, each named and with its reason: sizes, lengths, counts, page
sizes.
"""

BODY_BYTES_MAX = 32 * 1024 * 1024
"""The body of one request: a full batch of 10,000 jobs with payloads of 3 KiB fits."""
BATCH_JOBS_MAX = 10_000
"""Jobs in one batch: they become one journal record, which must be quick to append."""
DEPENDENCIES_MAX = 100_000
"""Upstream jobs of one job."""
PAYLOAD_BYTES_MAX = 1024 * 1024
"""The payload of one job; put larger input into a file or bundle and name it in the payload."""
TASK_BYTES_MAX = 256 * 1024
"""The task of one job: the kernel's own limit for arguments and environment is of this order."""
OUTPUT_FILES_MAX = 10_000
"""Output files of one execution that a worker keeps, files in subfolders included."""
OUTPUT_NAME_BYTES_MAX = 255
"""The name of an output file, with its folders."""
OUTPUT_DEPTH_MAX = 16
"""Levels of folders in the name of an output file, the file included."""
RESULT_BYTES_MAX = 1024 * 1024
"""The result of a job, or its error."""
NAME_CHARS_MAX = 255
"""Names of jobs, queues, tenants, workers, labels."""
CELL_NAME_CHARS_MAX = 32
"""The name of a cell: short, because many answers carry it."""
KEY_CHARS_MAX = 255
"""Idempotency and concurrency keys."""
LABELS_MAX = 64
"""Labels on one job; each is a row of the index that finds them."""
CAPABILITIES_MAX = 64
"""Capabilities that one job requires."""
WORKER_CAPABILITIES_MAX = 2_000
"""Capabilities of one worker: each function of an app is one."""
CAPABILITY_CHARS_MAX = 258
"""One capability: `fn:` and the longest name fit."""
URL_CHARS_MAX = 8_192
"""The URL of an `http` task; servers and proxies refuse longer ones anyway."""
HEADERS_MAX = 64
"""Headers of an `http` task."""
HEADER_CHARS_MAX = 8_192
"""The value of one header; servers accept little more for all of them."""
CUSTOM_RESOURCES_MAX = 16
"""Kinds of custom resource of one worker or job."""
QUEUES_PER_WORKER_MAX = 256
"""Queues that one worker names; to serve more, leave the field out and serve all."""
PRIORITY_MAX = 1000
"""The highest priority; the lowest is minus this."""
ATTEMPTS_MAX = 1000
"""Attempts of one job."""
PAGE_ITEMS_MAX = 1000
"""Items in one page of a list."""
PAGE_ITEMS_DEFAULT = 50
"""Items in a page if the request sets no limit."""
LEASE_ORDERS_MAX = 1000
"""Executions handed out by one `lease` call."""
LEASE_REPORTS_MAX = 10_000
"""Executions named or completed in one call of a worker."""
JOB_PROCESSES = 4_096
"""Processes and threads of one job, unless its queue says otherwise: stops a fork bomb."""
JOB_OPEN_FILES = 8_192
"""Files that one process of a job may have open, unless its queue says otherwise."""
JOB_FILE_BYTES = 1 << 40
"""One file that a job writes, unless its queue says otherwise: stops a job that writes without end.
"""
JOB_LOG_BYTES = 16 * 1024 * 1024
"""Log of one execution, unless its queue says otherwise: nobody reads a longer one to its end."""
JOB_PROCESSES_MAX = 1_000_000
"""The most processes that a queue may allow a job: the kernel has few more ids."""
JOB_OPEN_FILES_MAX = 1_000_000
"""The most open files that a queue may allow: many programs try to close every possible one."""
JOB_OPEN_FILES_MIN = 16
"""The fewest open files that a queue may allow: with fewer no program can load its libraries."""
LOG_CHUNK_BYTES_MAX = 1024 * 1024
"""One log upload; a worker cuts its output into smaller ones."""
LOG_BYTES_PER_EXECUTION_MAX = 64 * 1024 * 1024
"""Log kept of one execution; the rest is counted and dropped."""
DURATION_MS_MAX = 10 * 365 * 24 * 3600 * 1000
"""Ten years: longer than any sensible timeout, delay or interval."""
AMOUNT_MAX = 1_000_000_000
"""CPUs, GPUs or units of a custom resource of one machine."""
BYTES_MAX = 1 << 60
"""Memory or storage of one machine."""
MESSAGE_CHARS_MAX = 1000
"""A progress message."""
CRON_CHARS_MAX = 255
"""A cron expression."""
ZONE_CHARS_MAX = 64
"""The name of a time zone; the longest existing one has 32 characters."""
CALENDARS_PER_SCHEDULE_MAX = 16
"""Calendars that one schedule names."""
CALENDAR_DATES_MAX = 10_000
"""Dates of one calendar: every day of 27 years."""
CONCURRENCY_MAX = 10_000
"""Jobs of one schedule that may be active at once."""
BACKFILL_PARALLEL_MAX = 10_000
"""Jobs of one backfill that may be active at once."""
DEPLOYED_SCHEDULES_MAX = 1_000
"""Schedules of one app: they are deployed in one step."""
PREVIEW_ITEMS_MAX = 1_000
"""Times in one preview."""
EVENT_BYTES_MAX = 1_000_000
"""One event, whole, as JSON: it must fit into the payload of the job that gets it."""
EVENTS_BATCH_MAX = 1_000
"""Events in one call: they are decided in one step."""
EVENT_TYPE_CHARS_MAX = 255
"""The type of an event, or a pattern for types."""
ATTRIBUTE_CHARS_MAX = 1_024
"""Any other attribute of an event: its id, source, subject, and the sender's own."""
ATTRIBUTES_MAX = 32
"""Attributes that a sender adds to an event."""
FILTER_CHARS_MAX = 4_000
"""The filter of a trigger."""
BATCH_EVENTS_MAX = 1_000
"""Events that one job gets together."""
DEPLOYED_TRIGGERS_MAX = 1_000
"""Triggers of one app: they are deployed in one step."""
SECRET_CHARS_MIN = 16
"""The secret of a webhook endpoint: shorter ones can be guessed."""
SECRET_CHARS_MAX = 512
"""The longest secret that senders of webhooks accept."""
SECRETS_PER_HOOK_MAX = 4
"""Secrets of one webhook endpoint at a time: the old one, the new one, and some to spare."""
AFFINITY_LABELS_MAX = 32
"""Labels of one worker, and labels that one job requires or prefers."""
AFFINITY_VALUES_MAX = 64
"""Accepted values of one label."""
TAINTS_MAX = 16
"""Taints of one worker, and taints that one job tolerates."""
MEMORY_FACTOR_MAX = 16
"""Growth of a job's memory request from one attempt to the next."""
REPORT_DAYS_MAX = 14
"""Days that a report can look back."""
REPORT_ITEMS_MAX = 5_000
"""Names in one report: as many as are remembered."""
ARRAY_COUNT_MAX = 1_000_000
"""Members of one array: they wait in one row, which also names the members to run again."""
GANG_SIZE_MAX = 1_000
"""Members of one gang: all start in one step, and each gets the hosts of all."""
INPUTS_MAX = 16
"""Input bundles of one job."""
BUNDLE_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""One bundle: code with all its libraries, or input data."""
REPAIR_JOBS_MAX = 1_000
"""Jobs named in one repair: far more than there are ever in quarantine."""
ALERT_URL_CHARS_MAX = 2_000
"""The URL of an alert channel."""
SIMULATION_POLICIES_MAX = 4
"""Policies that one simulation compares: a chart cannot show more of them clearly."""
SIMULATION_WORKERS_MAX = 1_000
"""Workers of one simulation by a server; `rota simulate` takes more."""
SIMULATION_CPUS_MAX = 1_000_000
"""Processors of one simulation by a server; `rota simulate` takes more."""
TRACE_BYTES_MAX = 16 * 1024 * 1024
"""An uploaded trace: a year of a busy cluster, compressed, fits several times."""
