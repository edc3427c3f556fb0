"""Limits of the public contract, named and with reasons: sizes, lengths, counts, page sizes."""

BODY_BYTES_MAX = 32 * 1024 * 1024
"""One request's body: a full batch of 10,000 jobs with payloads of 3 KiB fits."""
BATCH_JOBS_MAX = 10_000
"""Jobs in one batch: one journal record, so it must stay small enough to append at once."""
DEPENDENCIES_MAX = 100_000
"""Upstream jobs of one job."""
PAYLOAD_BYTES_MAX = 1024 * 1024
"""One job's payload; larger input belongs into a file or object that the payload names."""
TASK_BYTES_MAX = 256 * 1024
"""One job's task: the kernel's own limit for arguments and environment is of this order."""
OUTPUT_FILES_MAX = 10_000
"""Files that a worker keeps of one execution's output folder, those in its subfolders included."""
OUTPUT_NAME_BYTES_MAX = 255
"""The name of an output file, with the folders it is in."""
OUTPUT_DEPTH_MAX = 16
"""Folders within each other that it may be in, and itself."""
RESULT_BYTES_MAX = 1024 * 1024
"""What a job may return or say as its error."""
NAME_CHARS_MAX = 255
"""Names of jobs, queues, tenants, workers, labels."""
CELL_NAME_CHARS_MAX = 32
"""The name of a cell: short, as it is told with many answers."""
KEY_CHARS_MAX = 255
"""Idempotency and concurrency keys."""
LABELS_MAX = 64
"""Labels on one job; each is a row of the index that finds them."""
CAPABILITIES_MAX = 64
"""Capabilities that one job asks for."""
WORKER_CAPABILITIES_MAX = 2_000
"""Capabilities of one worker: each function of an app is one."""
CAPABILITY_CHARS_MAX = 258
"""One capability: `fn:` and the longest name fit."""
URL_CHARS_MAX = 8_192
"""Where an `http` task goes; longer ones are refused by servers and proxies anyway."""
HEADERS_MAX = 64
"""Headers of an `http` task."""
HEADER_CHARS_MAX = 8_192
"""The value of one header; servers take little more for all of them."""
CUSTOM_RESOURCES_MAX = 16
"""Kinds of custom resource of one worker or job."""
QUEUES_PER_WORKER_MAX = 256
"""Queues one worker may name; more means: leave the field out and serve all."""
PRIORITY_MAX = 1000
"""Priorities go from minus this to plus this."""
ATTEMPTS_MAX = 1000
"""Tries of one job."""
PAGE_ITEMS_MAX = 1000
"""Items in one page of a list."""
PAGE_ITEMS_DEFAULT = 50
"""Items in a page when nobody says."""
LEASE_ORDERS_MAX = 1000
"""Executions handed out by one `lease` call."""
LEASE_REPORTS_MAX = 10_000
"""Executions named or completed in one call of a worker."""
JOB_PROCESSES = 4_096
"""Processes and threads of one job, unless its queue says otherwise: stops a fork bomb."""
JOB_OPEN_FILES = 8_192
"""Files that one process of a job may have open, unless its queue says otherwise."""
JOB_FILE_BYTES = 1 << 40
"""One file that a job writes, unless its queue says otherwise: stops what writes for ever."""
JOB_LOG_BYTES = 16 * 1024 * 1024
"""Log of one execution, unless its queue says otherwise: more is not read from end to end."""
JOB_PROCESSES_MAX = 1_000_000
"""The most processes that a queue may allow a job: the kernel numbers few more."""
JOB_OPEN_FILES_MAX = 1_000_000
"""The most open files that a queue may allow: many programs close every number there could be."""
JOB_OPEN_FILES_MIN = 16
"""The fewest: below it no program can load its libraries."""
LOG_CHUNK_BYTES_MAX = 1024 * 1024
"""One log upload; a worker cuts its output into smaller ones."""
LOG_BYTES_PER_EXECUTION_MAX = 64 * 1024 * 1024
"""Log kept of one execution; what comes after is counted and left out."""
DURATION_MS_MAX = 10 * 365 * 24 * 3600 * 1000
"""Ten years: longer than any timeout, delay or interval that is meant."""
AMOUNT_MAX = 1_000_000_000
"""Cpus, gpus or units of a custom resource of one machine."""
BYTES_MAX = 1 << 60
"""Memory or storage of one machine."""
MESSAGE_CHARS_MAX = 1000
"""A progress message."""
CRON_CHARS_MAX = 255
"""A cron expression."""
ZONE_CHARS_MAX = 64
"""The name of a time zone; the longest there is has 32 characters."""
CALENDARS_PER_SCHEDULE_MAX = 16
"""Calendars that one schedule names."""
CALENDAR_DATES_MAX = 10_000
"""Dates of one calendar: every day of 27 years."""
CONCURRENCY_MAX = 10_000
"""Runs of one schedule that may be under way at once."""
BACKFILL_PARALLEL_MAX = 10_000
"""Runs of one backfill that may be under way at once."""
DEPLOYED_SCHEDULES_MAX = 1_000
"""Schedules of one program: they are deployed in one step."""
PREVIEW_ITEMS_MAX = 1_000
"""Instants in one preview."""
EVENT_BYTES_MAX = 1_000_000
"""One event, all of it as JSON: a job that gets it whole must be able to carry it."""
EVENTS_BATCH_MAX = 1_000
"""Events in one call: they are decided in one step."""
EVENT_TYPE_CHARS_MAX = 255
"""The type of an event, or a pattern for it."""
ATTRIBUTE_CHARS_MAX = 1_024
"""Any other attribute of an event: its id, source, subject, and what the sender adds."""
ATTRIBUTES_MAX = 32
"""Attributes that a sender adds."""
FILTER_CHARS_MAX = 4_000
"""A trigger's filter."""
BATCH_EVENTS_MAX = 1_000
"""Events that one job gets together."""
DEPLOYED_TRIGGERS_MAX = 1_000
"""Triggers of one program: they are deployed in one step."""
SECRET_CHARS_MIN = 16
"""A webhook's secret: shorter ones can be guessed."""
SECRET_CHARS_MAX = 512
"""The longest that senders of webhooks take."""
SECRETS_PER_HOOK_MAX = 4
"""Secrets of one webhook endpoint at a time: the old, the new, and some to spare."""
AFFINITY_LABELS_MAX = 32
"""Labels of one worker, and labels that one job requires or prefers."""
AFFINITY_VALUES_MAX = 64
"""Values of one label that will do."""
TAINTS_MAX = 16
"""What one worker is kept for, and what one job tolerates."""
MEMORY_FACTOR_MAX = 16
"""By how much the memory of a job may grow from one try to the next."""
REPORT_DAYS_MAX = 14
"""How far back a report can look."""
REPORT_ITEMS_MAX = 5_000
"""Names in one report: as many as are remembered."""
ARRAY_COUNT_MAX = 1_000_000
"""Members of one array: they wait in one row, which also says which of them are to run again."""
GANG_SIZE_MAX = 1_000
"""Members of one gang: all of them start in one step, and are told of each other."""
INPUTS_MAX = 16
"""Bundles that one job is given beside what it runs."""
BUNDLE_BYTES_MAX = 4 * 1024 * 1024 * 1024
"""One bundle: code with all its libraries, or data for a job to begin with."""
ALERT_URL_CHARS_MAX = 2_000
"""An address that alerts are sent to."""
SIMULATION_POLICIES_MAX = 4
"""Policies that one simulation compares: more cannot be told apart in a chart."""
SIMULATION_WORKERS_MAX = 1_000
"""Workers of one simulation by a server; `rota simulate` takes more."""
SIMULATION_CPUS_MAX = 1_000_000
"""Processors of one simulation by a server; `rota simulate` takes more."""
TRACE_BYTES_MAX = 16 * 1024 * 1024
"""A trace that is uploaded: a year of a busy cluster, packed, fits several times."""
