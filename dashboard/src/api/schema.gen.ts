// Written by `make types` from the OpenAPI document: change the server's wire types, not this.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };

export interface AccuracyView {
  inside: number;
  starts: number;
}

export interface AffinitySpec {
  require?: Record<string, string | string[]> | null;
  prefer?: Record<string, string | string[]> | null;
  spread?: string | null;
  near?: "previous" | null;
  wait?: number | string | null;
  tolerate?: string[] | null;
}

export interface AffinityView {
  require: Record<string, string[]>;
  prefer: Record<string, string[]>;
  spread: string | null;
  near: "previous" | null;
  wait: number;
  tolerate: string[];
}

export interface AlertPage {
  items: AlertView[];
  next_cursor: string | null;
}

export interface AlertSpec {
  condition?: "backlog_grows" | "dead_letters" | "deadline_at_risk" | "deadline_missed" | "disk_low" | "failure_rate" | "jobs_quarantined" | "leader_changed" | "no_workers" | "records_lost" | "schedule_late" | "schedule_missed" | "store_slow" | "tables_behind" | "wait" | "worker_lost" | null;
  threshold?: number | null;
  window?: number | string | null;
  for?: number | string | null;
  at_least?: number | null;
  severity?: "critical" | "info" | "warning" | null;
  queue?: string | null;
  channels?: string[] | null;
  repeat?: number | string | null;
  enabled?: boolean | null;
}

export interface AlertTrial {
  holds: boolean | null;
  value: number | null;
  threshold: number;
  unit: string;
  message: string;
  tells: string[];
}

export interface AlertView {
  name: string;
  condition: "backlog_grows" | "dead_letters" | "deadline_at_risk" | "deadline_missed" | "disk_low" | "failure_rate" | "jobs_quarantined" | "leader_changed" | "no_workers" | "records_lost" | "schedule_late" | "schedule_missed" | "store_slow" | "tables_behind" | "wait" | "worker_lost";
  status: "firing" | "off" | "ok" | "pending";
  value: number | null;
  threshold: number;
  unit: string;
  message: string;
  since: string | null;
  severity: "critical" | "info" | "warning";
  queue: string | null;
  window: number;
  for: number;
  at_least: number;
  channels: string[] | null;
  repeat: number | null;
  enabled: boolean;
  silence: SilenceView | null;
  builtin: boolean;
  meaning: string;
}

export interface AmountView {
  capacity: number;
  used: number;
}

export interface AmountsView {
  cpu: number;
  memory: number;
}

export interface ArrayView {
  count: number;
  max_parallel: number | null;
  queued: number;
  running: number;
  succeeded: number;
  failed: number;
  cancelled: number;
}

export interface ArrivalPage {
  items: ArrivalView[];
  next_cursor: string | null;
}

export interface ArrivalView {
  event_id: string;
  source: string;
  type: string;
  received_at: string;
  outcome: "dropped" | "failed" | "filtered" | "fired" | "held" | "limited" | "paused" | "superseded" | "too_deep";
  message: string;
  job_id: string | null;
  decided_at: string;
}

export interface ArtifactPage {
  items: ArtifactView[];
  next_cursor?: string | null;
}

export interface ArtifactView {
  name: string;
  size: number;
  sha256?: string | null;
}

export interface AttentionView {
  items: ConcernView[];
}

export interface AuditPage {
  items: AuditView[];
  next_cursor: string | null;
}

export interface AuditView {
  at: string;
  token_id: string;
  token: string;
  method: string;
  route: string;
  target: string;
  status: number;
  remote: string;
  node: string;
}

export interface AutoscaleView {
  at: string;
  target: number;
  jobs: number;
  work: number;
  running: number;
  arrival: InflowView;
  workers: WorkerCountView;
  stranded: number;
  queues: Record<string, QueueDemandView>;
  kinds: KindView[];
}

export interface BackfillAnswer {
  backfill_id: string | null;
  count: number;
  already: number;
  job_ids: string[];
  items: ForeseenView[];
  dry_run?: boolean;
}

export interface BackfillSpec {
  from: string;
  to: string;
  max_parallel?: number | null;
  priority?: number | null;
  dry_run?: boolean | null;
}

export interface BarView {
  execution_id: string;
  job_id: string;
  name: string;
  worker_id: string;
  status: string;
  job_status: "cancelled" | "cancelling" | "expired" | "failed" | "pending" | "queued" | "running" | "skipped" | "succeeded" | null;
  start: string;
  end: string | null;
}

export interface BatchAnswer {
  job_ids: string[];
}

export interface BatchJobSpec {
  name: string;
  task?: Command | PythonCall | HttpCall | BundleRun | Container | Noop | null;
  queue?: string | null;
  tenant?: string | null;
  priority?: number | null;
  requirements?: Requirements | null;
  dependencies?: (string | DependencySpec)[] | null;
  run_at?: string | null;
  expires_at?: string | null;
  timeout?: number | string | null;
  expected_runtime?: number | string | null;
  retry?: RetrySpec | null;
  semantics?: "at_least_once" | "at_most_once" | null;
  concurrency?: ConcurrencySpec | null;
  preemptible?: boolean | null;
  labels?: Record<string, string> | null;
  payload?: Json;
  finish_by?: string | number | null;
  affinity?: AffinitySpec | null;
  count?: number | null;
  max_parallel?: number | null;
  gang?: GangSpec | null;
  ref?: string | null;
}

export interface BatchSpec {
  jobs: BatchJobSpec[];
}

export interface BatchingSpec {
  size?: number | null;
  wait?: number | string | null;
  key?: string | null;
}

export interface BatchingView {
  size: number;
  wait: number;
  key: string | null;
}

export interface BulkAnswer {
  count: number;
  refused?: number;
  dry_run?: boolean;
  more?: boolean;
  reasons?: Record<string, number>;
}

export interface BulkSpec {
  action: "cancel" | "delete" | "reprioritise" | "retry";
  filter: JobFilter;
  priority?: number | null;
  dry_run?: boolean | null;
  limit?: number | null;
}

export interface BundlePage {
  items: BundleView[];
  next_cursor: string | null;
}

export interface BundleRun {
  kind: "bundle";
  bundle_id: string;
  argv?: string[] | null;
  env?: Record<string, string> | null;
  inputs?: Record<string, string> | null;
}

export interface BundleUploadView {
  offset: number;
  bundle?: BundleView | null;
}

export interface BundleView {
  bundle_id: string;
  name: string;
  tenant: string;
  size: number;
  sha256: string;
  format: "file" | "tar" | "zip";
  created_at: string;
  used_at: string;
}

export interface CalendarPage {
  items: CalendarView[];
  next_cursor: string | null;
}

export interface CalendarSpec {
  dates: string[];
}

export interface CalendarView {
  name: string;
  dates: string[];
  schedules: number;
  updated_at: string;
}

export interface CauseView {
  code: string;
  message: string;
  figures: Record<string, Json>;
}

export interface ChannelPage {
  items: ChannelView[];
  next_cursor: string | null;
}

export interface ChannelSpec {
  url: string;
  secret?: string | null;
  severity?: "critical" | "info" | "warning" | null;
}

export interface ChannelTrial {
  taken: boolean;
  message: string;
}

export interface ChannelView {
  name: string;
  url: string;
  signed: boolean;
  severity: "critical" | "info" | "warning";
  waiting: number;
  last: DeliveryView | null;
}

export interface ClusterView {
  leader: string | null;
  epoch: number;
  nodes: NodeView[];
  durability: string;
  warnings?: string[];
  lost_records?: number;
  losses?: LossView[];
}

export interface Command {
  kind: "command";
  argv: string[];
  env?: Record<string, string> | null;
  cwd?: string | null;
  inputs?: Record<string, string> | null;
}

export interface CompletedReport {
  status: "cancelled" | "failed" | "returned" | "succeeded" | "timed_out";
  fence: number;
  result?: Json;
  error?: Json;
  exit_code?: number | null;
  usage?: Record<string, Json> | null;
  retryable?: boolean | null;
  retry_after?: number | string | null;
  execution_id: string;
}

export interface CompletionSpec {
  status: "cancelled" | "failed" | "returned" | "succeeded" | "timed_out";
  fence: number;
  result?: Json;
  error?: Json;
  exit_code?: number | null;
  usage?: Record<string, Json> | null;
  retryable?: boolean | null;
  retry_after?: number | string | null;
}

export interface ConcernView {
  kind: "alert" | "cluster" | "failing" | "queue" | "schedule" | "worker";
  about: string;
  name: string;
  message: string;
  count?: number;
  since?: string | null;
  job_id?: string | null;
}

export interface ConcurrencySpec {
  key: string;
  limit?: number | null;
}

export interface ConcurrencyView {
  key: string;
  limit: number;
}

export interface Container {
  kind: "container";
  image: string;
  argv?: string[] | null;
  env?: Record<string, string> | null;
  inputs?: Record<string, string> | null;
}

export interface CountAnswer {
  count: number;
}

export interface DeadlineView {
  finish_by: string;
  verdict: "at_risk" | "late" | "met" | "missed" | "on_time";
  slack: number;
  expected_finish?: string | null;
}

export interface DebounceSpec {
  wait: number | string;
  keep?: "all" | "last" | null;
  max_wait?: number | string | null;
  key?: string | null;
}

export interface DebounceView {
  wait: number;
  keep: "all" | "last";
  max_wait: number | null;
  key: string | null;
}

export interface DeliveryView {
  channel: string;
  status: "given_up" | "taken" | "waiting";
  tries: number;
  at: string | null;
  error: string | null;
  next_try: string | null;
}

export interface DependencySpec {
  job_id: string;
  when?: "failed" | "finished" | "succeeded" | null;
}

export interface DependencyView {
  job_id: string;
  when: "failed" | "finished" | "succeeded";
}

export interface DeployAnswer {
  created: string[];
  changed: string[];
  unchanged: string[];
  retired: string[];
}

export interface DeploySpec {
  owner: string;
  schedules: ScheduleSpec[];
}

export interface DeployTriggersSpec {
  owner: string;
  triggers: TriggerSpec[];
}

export interface DepthView {
  pending: number;
  queued: number;
  running: number;
  cancelling: number;
}

export interface DryRunBatchView {
  jobs: DryRunView[];
}

export interface DryRunView {
  verdict: "later" | "never" | "now" | "unknown";
  message: string;
  estimated_start: EstimateView;
  causes?: CauseView[];
  deadline?: DeadlineView | null;
  ref?: string | null;
}

export interface DstSpec {
  gap?: "jump" | "shift" | "skip" | null;
  overlap?: "both" | "first" | "second" | null;
}

export interface DstView {
  gap: "jump" | "shift" | "skip";
  overlap: "both" | "first" | "second";
}

export interface ErrorGroupPage {
  items: ErrorGroupView[];
  examined: number;
  more: boolean;
}

export interface ErrorGroupView {
  fingerprint: string;
  name: string;
  message: string;
  reason: string;
  count: number;
  queues: string[];
  first_at: string;
  last_at: string;
  job_ids: string[];
}

export interface EstimateView {
  at: string | null;
  method: string;
  low?: string | null;
  high?: string | null;
  computed_at?: string | null;
  worker_id?: string | null;
  accuracy?: AccuracyView | null;
}

export interface EventOutcome {
  trigger_id: string;
  name: string | null;
  outcome: "dropped" | "failed" | "filtered" | "fired" | "held" | "limited" | "paused" | "superseded" | "too_deep";
  message: string;
  job_id: string | null;
}

export interface EventPage {
  items: EventView[];
  next_cursor: string | null;
}

export interface EventSpec {
  id: string;
  source: string;
  type: string;
  specversion?: "1.0" | null;
  time?: string | null;
  subject?: string | null;
  datacontenttype?: string | null;
  dataschema?: string | null;
  data?: Json;
  data_base64?: string | null;
}

export interface EventView {
  id: string;
  source: string;
  type: string;
  received_at: string;
  duplicate: boolean;
  repeats: number;
  job_ids: string[];
  outcomes: EventOutcome[];
}

export interface EventsAnswer {
  items: EventView[];
}

export interface ExecuteSpec {
  worker_id: string;
}

export interface ExecutionPage {
  items: ExecutionView[];
  next_cursor: string | null;
}

export interface ExecutionView {
  execution_id: string;
  job_id: string;
  worker_id: string;
  attempt: number;
  fence: number;
  status: "cancelled" | "claimed" | "failed" | "lost" | "preempted" | "running" | "succeeded" | "timed_out";
  reason: string | null;
  claimed_at: string;
  start_time: string | null;
  end_time: string | null;
  result: Json;
  error: Json;
  exit_code: number | null;
  usage: Json;
  artifacts: Record<string, Json>[];
  memory?: number;
  behind?: string | null;
}

export interface FieldError {
  field: string;
  message: string;
}

export interface ForeseenView {
  at: string;
  local: string;
  note?: string | null;
}

export interface GangSpec {
  size: number;
}

export interface GangView {
  size: number;
  queued?: number;
  running?: number;
  succeeded?: number;
  failed?: number;
  cancelled?: number;
  hosts?: string[];
}

export interface GraphEdge {
  from: string;
  to: string;
  when: "failed" | "finished" | "succeeded";
}

export interface GraphNode {
  job_id: string;
  name: string;
  status: "cancelled" | "cancelling" | "expired" | "failed" | "pending" | "queued" | "running" | "skipped" | "succeeded";
}

export interface GraphView {
  nodes: GraphNode[];
  edges: GraphEdge[];
  truncated?: boolean;
}

export interface Health {
  status: string;
  detail?: string;
  cell?: string;
  role?: string;
}

export interface HeartbeatAnswer {
  cancel: string[];
  lost: string[];
}

export interface HeartbeatSpec {
  usage?: Record<string, Json> | null;
  executions?: (string | RunningReport)[] | null;
  session?: string | null;
}

export interface HistoryView {
  step: number;
  items: SampleView[];
}

export interface HookAnswer {
  status: "accepted" | "repeated";
}

export interface HookPage {
  items: HookView[];
  next_cursor: string | null;
}

export interface HookSpec {
  scheme: "github" | "rota" | "stripe";
  secrets?: string[] | null;
  type?: string | null;
  tolerance?: number | string | null;
}

export interface HookView {
  name: string;
  scheme: "github" | "rota" | "stripe";
  type: string;
  tolerance: number;
  path: string;
  secrets: number;
  created_at: string;
  updated_at: string;
  secret?: string;
}

export interface HttpCall {
  kind: "http";
  url: string;
  method?: "DELETE" | "GET" | "HEAD" | "OPTIONS" | "PATCH" | "POST" | "PUT" | null;
  headers?: Record<string, string> | null;
  body?: Json;
}

export interface InflowView {
  jobs_per_second: number;
  work_per_second: number;
}

export interface JobFilter {
  job_ids?: string[] | null;
  status?: ("cancelled" | "cancelling" | "expired" | "failed" | "pending" | "queued" | "running" | "skipped" | "succeeded")[] | string | null;
  priority?: number | null;
  queue?: string | null;
  tenant?: string | null;
  name?: string | null;
  labels?: Record<string, string> | null;
  label?: string[] | string | null;
  created_after?: string | null;
  created_before?: string | null;
  fingerprint?: string | null;
}

export interface JobPage {
  items: JobView[];
  next_cursor: string | null;
}

export interface JobSpec {
  name: string;
  task?: Command | PythonCall | HttpCall | BundleRun | Container | Noop | null;
  queue?: string | null;
  tenant?: string | null;
  priority?: number | null;
  requirements?: Requirements | null;
  dependencies?: (string | DependencySpec)[] | null;
  run_at?: string | null;
  expires_at?: string | null;
  timeout?: number | string | null;
  expected_runtime?: number | string | null;
  retry?: RetrySpec | null;
  semantics?: "at_least_once" | "at_most_once" | null;
  concurrency?: ConcurrencySpec | null;
  preemptible?: boolean | null;
  labels?: Record<string, string> | null;
  payload?: Json;
  finish_by?: string | number | null;
  affinity?: AffinitySpec | null;
  count?: number | null;
  max_parallel?: number | null;
  gang?: GangSpec | null;
}

export interface JobView {
  job_id: string;
  name: string;
  queue: string;
  tenant: string;
  priority: number;
  status: "cancelled" | "cancelling" | "expired" | "failed" | "pending" | "queued" | "running" | "skipped" | "succeeded";
  reason: string | null;
  task: Json;
  payload: Json;
  requirements: RequirementsView;
  dependencies: DependencyView[];
  run_at: string | null;
  expires_at: string | null;
  timeout: number | null;
  expected_runtime: number | null;
  retry: RetryView;
  semantics: "at_least_once" | "at_most_once";
  concurrency: ConcurrencyView | null;
  preemptible: boolean;
  labels: Record<string, string>;
  attempt: number;
  fence: number;
  losses: number;
  execution_id: string | null;
  worker_id: string | null;
  created_at: string;
  scheduled_at: string;
  started_at: string | null;
  finished_at: string | null;
  progress: number | null;
  message: string | null;
  result: Json;
  error: Json;
  schedule_id?: string | null;
  trigger_id?: string | null;
  affinity?: AffinityView | null;
  array?: ArrayView | null;
  gang?: GangView | null;
  array_id?: string | null;
  array_index?: number | null;
  gang_id?: string | null;
  gang_index?: number | null;
  finish_by?: string | null;
  deadline?: DeadlineView | null;
}

export interface KindView {
  size: SizeView;
  capabilities: string[];
  queues: string[] | null;
  only: string[];
  workers: WorkerCountView;
}

export interface LagView {
  records: number;
  seconds: number;
}

export interface LastView {
  at: string;
  outcome: "caught_up" | "fired" | "late" | "skipped";
  job_id: string | null;
}

export interface LeaseAnswer {
  executions: OrderView[];
  held_for: number;
  cancel: string[];
  lost: string[];
}

export interface LeaseSpec {
  max?: number | null;
  wait?: number | string | null;
  completed?: CompletedReport[] | null;
  executions?: (string | RunningReport)[] | null;
  usage?: Record<string, Json> | null;
  session?: string | null;
  spare?: number | null;
  patient?: boolean | null;
}

export interface LimitsSpec {
  processes?: number | null;
  open_files?: number | null;
  file_size?: number | string | null;
  log_size?: number | string | null;
  result_size?: number | string | null;
}

export interface LimitsView {
  processes?: number;
  open_files?: number;
  file_size?: number;
  log_size?: number;
  result_size?: number;
}

export interface LinkView {
  url: string;
  signed: boolean;
  expires_in: number | null;
}

export interface LogSize {
  size: number;
}

export interface LossView {
  records: number;
  at: string;
  after: number;
}

export interface NewTokenView {
  token_id: string;
  name: string;
  role: "admin" | "operator" | "submitter" | "viewer" | "worker";
  tenant: string | null;
  status: "expired" | "live" | "revoked";
  created_at: string;
  created_by: string;
  expires_at: string | null;
  revoked_at: string | null;
  token: string;
}

export interface NodeView {
  node: string;
  address: string;
  role: string;
  status: string;
  version: string;
  lag: LagView;
  last_seen: string;
  started_at: string;
}

export interface Noop {
  kind: "noop";
}

export interface NoticePage {
  items: NoticeView[];
  next_cursor: string | null;
}

export interface NoticeView {
  name: string;
  status: "firing" | "resolved" | "test";
  severity: "critical" | "info" | "warning";
  message: string;
  value: number;
  since: string;
  at: string;
  deliveries: DeliveryView[];
}

export interface OccurrencePage {
  items: OccurrenceView[];
  next_cursor: string | null;
}

export interface OccurrenceView {
  schedule_id: string;
  at: string;
  outcome: "caught_up" | "fired" | "late" | "skipped";
  reason: string | null;
  message: string | null;
  job_id: string | null;
  cause: "backfill" | "schedule" | "trigger";
  decided_at: string;
  late: number;
  until: string | null;
  revision: number;
}

export interface OrderView {
  execution_id: string;
  job_id: string;
  attempt: number;
  fence: number;
  name: string;
  queue: string;
  task: Json;
  payload: Json;
  requirements: RequirementsView;
  timeout: number | null;
  lease_expires_in: number;
  scheduled_at: string;
  traceparent?: string | null;
  limits?: LimitsView | null;
  array?: PlaceView | null;
  gang?: RankView | null;
  behind?: string | null;
}

export interface PhaseView {
  what: "pending" | "queued" | "running";
  since: string;
  until: string | null;
  seconds: number;
  reason?: string | null;
  worker_id?: string | null;
}

export interface PlaceView {
  array_id: string;
  index: number;
  count: number;
}

export interface PolicySpec {
  preset?: "conservative" | "default" | "easy" | "easy-sjf" | "fcfs" | "strict" | null;
  order?: "fair" | "fifo" | "priority" | "round_robin" | null;
  backfill?: "conservative" | "easy" | "greedy" | "none" | null;
  candidates?: "order" | "shortest" | null;
  beta?: number | null;
  length_cap?: number | string | null;
  priority_wait?: number | string | null;
  half_life?: number | string | null;
  preempt_gap?: number | null;
  preempt_after?: number | string | null;
  max_running?: number | null;
  max_queued?: number | null;
}

export interface PolicyView {
  order: "fair" | "fifo" | "priority" | "round_robin";
  backfill: "conservative" | "easy" | "greedy" | "none";
  candidates: "order" | "shortest";
  beta: number;
  length_cap: number;
  priority_wait: number;
  half_life: number;
  preempt_gap: number | null;
  preempt_after: number;
  max_running: number | null;
  max_queued: number | null;
}

export interface PositionView {
  ahead: number;
  waiting: number;
  exact: boolean;
  starts_before?: number | null;
  tenants_ahead?: number;
}

export interface PreviewAnswer {
  items: ForeseenView[];
}

export interface PreviewSpec {
  cron?: string | null;
  interval?: number | string | null;
  at?: string | null;
  timezone?: string | null;
  from?: "finish" | "start" | null;
  starts_at?: string | null;
  ends_at?: string | null;
  dst?: DstSpec | null;
  jitter?: number | string | null;
  calendars?: string[] | null;
  on_holiday?: "shift" | "skip" | null;
  catch_up?: "all" | "latest" | "none" | null;
  catch_up_window?: number | string | null;
  overlap?: "allow" | "queue" | "replace" | "skip" | null;
  max_concurrency?: number | null;
  paused?: boolean | null;
  name?: string | null;
  job?: JobSpec | null;
}

export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  errors?: FieldError[];
  reasons?: string[];
}

export interface ProgressSpec {
  progress?: number | null;
  message?: string | null;
  fence?: number | null;
}

export interface PythonCall {
  kind: "python";
  entry: string;
  args?: Json[] | null;
  kwargs?: Record<string, Json> | null;
}

export interface QuarantinePage {
  items: QuarantinedJobView[];
  next_cursor: string | null;
}

export interface QuarantinedJobView {
  job_id: string;
  seq: number;
  at: string;
  reason: string;
  count: number;
  writes: QuarantinedWriteView[];
}

export interface QuarantinedWriteView {
  seq: number;
  size: number;
  kind: string;
  fields: Record<string, Json>;
}

export interface QueueDemandView {
  jobs: number;
  work: number;
  running: number;
  arrival: InflowView;
  workers: WorkerCountView;
  stranded: number;
  paused: boolean;
  shapes: ShapeView[];
}

export interface QueuePage {
  items: QueueView[];
  next_cursor: string | null;
}

export interface QueueSpec {
  priority?: number | null;
  weight?: number | null;
  max_workers?: number | null;
  rate_limit?: RateLimitSpec | null;
  paused?: boolean | null;
  limits?: LimitsSpec | null;
}

export interface QueueView {
  name: string;
  priority: number;
  weight: number;
  max_workers: number | null;
  rate_limit: RateLimitView | null;
  paused: boolean;
  depth: DepthView;
  created_at: string;
  limits?: LimitsView;
  rate?: number | null;
}

export interface QuotaSpec {
  running?: number | null;
  queued?: number | null;
  cpu?: number | null;
  memory?: number | string | null;
}

export interface QuotaView {
  running: number | null;
  queued: number | null;
  cpu: number | null;
  memory: number | null;
}

export interface RankView {
  gang_id: string;
  index: number;
  size: number;
  hosts: string[];
}

export interface RateLimitSpec {
  count: number;
  per: number | string;
}

export interface RateLimitView {
  count: number;
  per: number;
}

export interface RegisterAnswer {
  worker_id: string;
  session: string;
  heartbeat_interval: number;
  lease_ttl: number;
  poll_wait_max: number;
  spare_max?: number;
  patient?: boolean;
}

export interface RegisterSpec {
  name: string;
  worker_id?: string | null;
  capabilities?: string[] | null;
  resources?: ResourcesSpec | null;
  queues?: string[] | null;
  labels?: Record<string, string> | null;
  only?: string[] | null;
}

export interface ReliefView {
  code: string;
  message: string;
  figures: Record<string, Json>;
  enough: boolean | null;
}

export interface RepairFailure {
  job_id: string;
  reason: string;
}

export interface RepairSpec {
  job_ids?: string[] | null;
}

export interface RepairView {
  repaired: string[];
  failed: RepairFailure[];
}

export interface ReplayView {
  policy: "conservative" | "current" | "default" | "easy" | "easy-sjf" | "fcfs" | "recorded" | "strict";
  avg_wait: number;
  p50_wait: number;
  p95_wait: number;
  max_wait: number;
  slowdown: number;
  utilisation: number;
  makespan: number;
  preemptions: number;
  peak_waiting: number | null;
  waits: (number | null)[];
  uses: number[];
}

export interface Requirements {
  cpu?: number | null;
  memory?: number | string | null;
  storage?: number | string | null;
  gpu?: number | null;
  custom?: Record<string, number> | null;
  capabilities?: string[] | null;
}

export interface RequirementsView {
  cpu: number;
  memory: number;
  storage: number;
  gpu: number;
  custom: Record<string, number>;
  capabilities: string[];
}

export interface ReservedView {
  job_id: string;
  name: string;
  worker_id: string;
  start: string;
  end: string;
}

export interface ResourcesSpec {
  cpu?: number | null;
  memory?: number | string | null;
  storage?: number | string | null;
  gpu?: number | null;
  custom?: Record<string, number> | null;
}

export interface RetrySpec {
  max_attempts?: number | null;
  backoff?: "exponential" | "fixed" | "linear" | null;
  delay?: number | string | null;
  factor?: number | null;
  max_delay?: number | string | null;
  jitter?: number | null;
  memory_factor?: number | null;
  memory_max?: number | string | null;
}

export interface RetryView {
  max_attempts: number;
  backoff: string;
  delay: number;
  factor: number;
  max_delay: number;
  jitter: number;
  memory_factor?: number;
  memory_max?: number | null;
}

export interface RunningReport {
  execution_id: string;
  fence?: number | null;
  progress?: number | null;
  message?: string | null;
}

export interface SampleView {
  at: string;
  span: number;
  waiting: number;
  running: number;
  submitted: number;
  succeeded: number;
  failed: number;
  other: number;
  wait_p50: number | null;
  wait_p95: number | null;
  resources: Record<string, Record<string, number>>;
}

export interface SchedulePage {
  items: ScheduleView[];
  next_cursor: string | null;
}

export interface ScheduleSpec {
  cron?: string | null;
  interval?: number | string | null;
  at?: string | null;
  timezone?: string | null;
  from?: "finish" | "start" | null;
  starts_at?: string | null;
  ends_at?: string | null;
  dst?: DstSpec | null;
  jitter?: number | string | null;
  calendars?: string[] | null;
  on_holiday?: "shift" | "skip" | null;
  catch_up?: "all" | "latest" | "none" | null;
  catch_up_window?: number | string | null;
  overlap?: "allow" | "queue" | "replace" | "skip" | null;
  max_concurrency?: number | null;
  paused?: boolean | null;
  name: string;
  job: JobSpec;
}

export interface ScheduleView {
  schedule_id: string;
  name: string;
  cron: string | null;
  interval: number | null;
  at: string | null;
  timezone: string;
  from: "finish" | "start";
  starts_at: string | null;
  ends_at: string | null;
  dst: DstView;
  jitter: number;
  calendars: string[];
  on_holiday: "shift" | "skip";
  catch_up: "all" | "latest" | "none";
  catch_up_window: number;
  overlap: "allow" | "queue" | "replace" | "skip";
  max_concurrency: number;
  paused: boolean;
  job: Record<string, Json>;
  status: "active" | "ended" | "paused";
  next_at: string | null;
  last: LastView | null;
  running: string[];
  owner: string | null;
  trouble: string | null;
  revision: number;
  created_at: string;
  updated_at: string;
}

export interface SessionView {
  name: string;
  role: string;
  tenant: string | null;
  node: string;
  cell: string;
  version: string;
  now: string;
}

export interface ShapeView {
  requirements: RequirementsView;
  jobs: number;
  work: number;
  running: number;
  arrival: InflowView;
  slots: number;
  per_worker: number | null;
  kind: number | null;
}

export interface SilenceSpec {
  for: number | string;
  reason?: string | null;
}

export interface SilenceView {
  until: string;
  reason: string;
}

export interface SimulationSpec {
  from: string;
  to?: string | null;
  workers?: number | null;
  policies?: ("conservative" | "current" | "default" | "easy" | "easy-sjf" | "fcfs" | "recorded" | "strict")[] | null;
}

export interface SimulationView {
  from: string | null;
  jobs: number;
  left_out: number;
  is_cut: boolean;
  workers: number;
  cpus: number;
  load: number | null;
  span: number;
  policies: ReplayView[];
}

export interface SizeView {
  cpu: number;
  memory: number;
  storage: number;
  gpu: number;
  custom: Record<string, number>;
}

export interface SpreadView {
  p50: number;
  p95: number;
  max: number;
}

export interface StatsView {
  jobs: Record<string, number>;
  queues: number;
  workers: Record<string, number>;
  resources: Record<string, Record<string, number>>;
  submitted_total: number;
  version: string;
  started_at: string;
}

export interface TenantPage {
  items: TenantView[];
  next_cursor: string | null;
}

export interface TenantSpec {
  weight?: number | null;
  quota?: QuotaSpec | null;
}

export interface TenantView {
  name: string;
  weight: number;
  quota: QuotaView;
  depth: DepthView;
  cpu: number;
  memory: number;
  share: number;
  entitlement: number;
  usage: number;
}

export interface TimelineBucketsView {
  step: number;
  total: number;
  estimated: boolean;
  lanes: WorkerBucketsView[];
}

export interface TimelineView {
  start: string;
  end: string;
  items: BarView[];
  more: boolean;
  reserved?: ReservedView[];
  running?: number;
  crowd?: TimelineBucketsView | null;
}

export interface TokenPage {
  items: TokenView[];
  next_cursor: string | null;
}

export interface TokenSpec {
  role: "admin" | "operator" | "submitter" | "viewer" | "worker";
  name?: string | null;
  tenant?: string | null;
  expires_in?: number | string | null;
}

export interface TokenView {
  token_id: string;
  name: string;
  role: "admin" | "operator" | "submitter" | "viewer" | "worker";
  tenant: string | null;
  status: "expired" | "live" | "revoked";
  created_at: string;
  created_by: string;
  expires_at: string | null;
  revoked_at: string | null;
}

export interface TrialAnswer {
  items: TrialView[];
}

export interface TrialSpec {
  event: EventSpec;
  trigger?: TriggerSpec | null;
  trigger_id?: string | null;
}

export interface TrialView {
  trigger_id: string | null;
  name: string;
  outcome: "dropped" | "failed" | "filtered" | "fired" | "held" | "limited" | "paused" | "superseded" | "too_deep";
  message: string;
  job: Record<string, Json> | null;
}

export interface TriggerPage {
  items: TriggerView[];
  next_cursor: string | null;
}

export interface TriggerSpec {
  name: string;
  event: string;
  job: JobSpec;
  filter?: string | Record<string, Json> | null;
  debounce?: number | string | DebounceSpec | null;
  batch?: number | BatchingSpec | null;
  rate_limit?: RateLimitSpec | null;
  paused?: boolean | null;
}

export interface TriggerView {
  trigger_id: string;
  name: string;
  event: string;
  filter: Json;
  job: Record<string, Json>;
  debounce: DebounceView | null;
  batch: BatchingView | null;
  rate_limit: RateLimitView | null;
  paused: boolean;
  waiting: number;
  closes_at: string | null;
  owner: string | null;
  revision: number;
  created_at: string;
  updated_at: string;
}

export interface UploadView {
  offset: number;
}

export interface UsedView {
  cpu: SpreadView;
  memory: SpreadView;
  runtime: SpreadView;
}

export interface WasteItem {
  tenant: string;
  name: string;
  sums: WasteSums;
  asked: AmountsView;
  used: UsedView;
  suggestion: AmountsView | null;
}

export interface WasteSums {
  runs: number;
  cpu_hours_asked: number;
  cpu_hours_used: number;
  cpu_hours_wasted: number;
  memory_gib_hours_asked: number;
  memory_gib_hours_used: number;
  memory_gib_hours_wasted: number;
}

export interface WasteTenant {
  tenant: string;
  sums: WasteSums;
}

export interface WasteView {
  since: string;
  sums: WasteSums;
  tenants: WasteTenant[];
  items: WasteItem[];
}

export interface WhyView {
  job_id: string;
  status: "cancelled" | "cancelling" | "expired" | "failed" | "pending" | "queued" | "running" | "skipped" | "succeeded";
  cause: CauseView;
  others: CauseView[];
  estimated_start: EstimateView;
  would_help?: ReliefView[];
  position?: PositionView | null;
  history?: PhaseView[];
  deadline?: DeadlineView | null;
}

export interface WorkerBucketsView {
  worker_id: string;
  began: number[];
  failed: number[];
}

export interface WorkerCountView {
  online: number;
  idle: number;
  needed: number;
  add: number;
  remove: number;
}

export interface WorkerPage {
  items: WorkerView[];
  next_cursor: string | null;
}

export interface WorkerResources {
  cpu: AmountView;
  memory: AmountView;
  storage: AmountView;
  gpu: AmountView;
  custom: Record<string, AmountView>;
}

export interface WorkerView {
  worker_id: string;
  name: string;
  status: "draining" | "offline" | "online" | "unhealthy";
  capabilities: string[];
  queues: string[] | null;
  resources: WorkerResources;
  last_heartbeat: string | null;
  registered_at: string;
  executions: string[];
  usage: Record<string, Json>;
  labels?: Record<string, string>;
  only?: string[];
}

export interface Calls {
  "POST /jobs": {
    query: { dry_run?: boolean; };
    body: JobSpec;
    answer: JobView | DryRunView;
  };
  "GET /jobs": {
    query: { status?: string; priority?: number; queue?: string; tenant?: string; name?: string; label?: string[]; created_after?: string; created_before?: string; array?: string; limit?: number; cursor?: string; };
    body: null;
    answer: JobPage;
  };
  "POST /jobs/batch": {
    query: { dry_run?: boolean; };
    body: BatchSpec;
    answer: BatchAnswer | DryRunBatchView;
  };
  "POST /jobs/bulk": {
    query: Record<string, never>;
    body: BulkSpec;
    answer: BulkAnswer;
  };
  "GET /jobs/{job_id}": {
    query: Record<string, never>;
    body: null;
    answer: JobView;
  };
  "PATCH /jobs/{job_id}": {
    query: Record<string, never>;
    body: { name?: string; task?: Command | PythonCall | HttpCall | BundleRun | Container | Noop | null | null; queue?: string | null; tenant?: string | null; priority?: number | null; requirements?: Requirements | null; dependencies?: (string | DependencySpec)[] | null; run_at?: string | null | null; expires_at?: string | null | null; timeout?: number | string | null | null; expected_runtime?: number | string | null | null; retry?: RetrySpec | null; semantics?: "at_least_once" | "at_most_once" | null; concurrency?: ConcurrencySpec | null | null; preemptible?: boolean | null; labels?: Record<string, string> | null; payload?: Json; finish_by?: string | number | null | null; affinity?: AffinitySpec | null | null; count?: number | null | null; max_parallel?: number | null | null; gang?: GangSpec | null | null; };
    answer: JobView;
  };
  "DELETE /jobs/{job_id}": {
    query: { force?: boolean; };
    body: null;
    answer: null | JobView;
  };
  "PUT /jobs/{job_id}/cancel": {
    query: Record<string, never>;
    body: null;
    answer: JobView;
  };
  "POST /jobs/{job_id}/retry": {
    query: Record<string, never>;
    body: null;
    answer: JobView;
  };
  "POST /jobs/{job_id}/execute": {
    query: Record<string, never>;
    body: ExecuteSpec;
    answer: ExecutionView;
  };
  "GET /jobs/{job_id}/why": {
    query: Record<string, never>;
    body: null;
    answer: WhyView;
  };
  "GET /jobs/{job_id}/graph": {
    query: Record<string, never>;
    body: null;
    answer: GraphView;
  };
  "GET /jobs/{job_id}/logs": {
    query: { follow?: boolean; offset?: number; tail?: number; limit?: number; execution_id?: string; };
    body: null;
    answer: string;
  };
  "GET /dead-letters": {
    query: { queue?: string; tenant?: string; name?: string; limit?: number; cursor?: string; };
    body: null;
    answer: JobPage;
  };
  "GET /dead-letters/groups": {
    query: { queue?: string; tenant?: string; name?: string; };
    body: null;
    answer: ErrorGroupPage;
  };
  "POST /workers/{worker_id}/lease": {
    query: Record<string, never>;
    body: LeaseSpec;
    answer: LeaseAnswer;
  };
  "POST /workers/register": {
    query: Record<string, never>;
    body: RegisterSpec;
    answer: RegisterAnswer;
  };
  "GET /workers": {
    query: { status?: string; capabilities?: string; limit?: number; cursor?: string; };
    body: null;
    answer: WorkerPage;
  };
  "GET /workers/{worker_id}": {
    query: Record<string, never>;
    body: null;
    answer: WorkerView;
  };
  "DELETE /workers/{worker_id}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /workers/{worker_id}/heartbeat": {
    query: Record<string, never>;
    body: HeartbeatSpec;
    answer: HeartbeatAnswer;
  };
  "POST /workers/{worker_id}/drain": {
    query: Record<string, never>;
    body: null;
    answer: WorkerView;
  };
  "POST /workers/{worker_id}/resume": {
    query: Record<string, never>;
    body: null;
    answer: WorkerView;
  };
  "POST /executions/{execution_id}/complete": {
    query: Record<string, never>;
    body: CompletionSpec;
    answer: ExecutionView;
  };
  "GET /executions": {
    query: { job_id?: string; worker_id?: string; status?: string; limit?: number; cursor?: string; };
    body: null;
    answer: ExecutionPage;
  };
  "GET /executions/{execution_id}": {
    query: Record<string, never>;
    body: null;
    answer: ExecutionView;
  };
  "POST /executions/{execution_id}/progress": {
    query: Record<string, never>;
    body: ProgressSpec;
    answer: HeartbeatAnswer;
  };
  "GET /executions/{execution_id}/logs": {
    query: { follow?: boolean; offset?: number; tail?: number; limit?: number; };
    body: null;
    answer: string;
  };
  "POST /executions/{execution_id}/logs": {
    query: { offset?: number; fence?: number; };
    body: string;
    answer: LogSize;
  };
  "GET /executions/{execution_id}/artifacts": {
    query: Record<string, never>;
    body: null;
    answer: ArtifactPage;
  };
  "GET /executions/{execution_id}/artifacts/{name}": {
    query: Record<string, never>;
    body: null;
    answer: string;
  };
  "PUT /executions/{execution_id}/artifacts/{name}": {
    query: { sha256?: string; offset?: number; };
    body: string;
    answer: ArtifactView;
  };
  "GET /executions/{execution_id}/artifacts/{name}/link": {
    query: Record<string, never>;
    body: null;
    answer: LinkView;
  };
  "GET /executions/{execution_id}/artifacts/{name}/upload": {
    query: { sha256: string; };
    body: null;
    answer: UploadView;
  };
  "GET /executions/{execution_id}/bundles/{bundle_id}": {
    query: Record<string, never>;
    body: null;
    answer: BundleView;
  };
  "GET /executions/{execution_id}/bundles/{bundle_id}/content": {
    query: Record<string, never>;
    body: null;
    answer: string;
  };
  "POST /bundles": {
    query: { name?: string; tenant?: string; sha256?: string; size?: number; offset?: number; format?: "file" | "tar" | "zip"; };
    body: string;
    answer: BundleView | UploadView;
  };
  "GET /bundles": {
    query: { tenant?: string; sha256?: string; unused_for?: string; limit?: number; cursor?: string; };
    body: null;
    answer: BundlePage;
  };
  "GET /bundles/uploads/{sha256}": {
    query: { tenant?: string; };
    body: null;
    answer: BundleUploadView;
  };
  "GET /bundles/{bundle_id}": {
    query: Record<string, never>;
    body: null;
    answer: BundleView;
  };
  "DELETE /bundles/{bundle_id}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "GET /bundles/{bundle_id}/content": {
    query: Record<string, never>;
    body: null;
    answer: string;
  };
  "GET /queues": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: QueuePage;
  };
  "GET /queues/{name}": {
    query: Record<string, never>;
    body: null;
    answer: QueueView;
  };
  "PUT /queues/{name}": {
    query: Record<string, never>;
    body: QueueSpec;
    answer: QueueView;
  };
  "PATCH /queues/{name}": {
    query: Record<string, never>;
    body: QueueSpec;
    answer: QueueView;
  };
  "POST /queues/{name}/pause": {
    query: Record<string, never>;
    body: null;
    answer: QueueView;
  };
  "POST /queues/{name}/resume": {
    query: Record<string, never>;
    body: null;
    answer: QueueView;
  };
  "POST /queues/{name}/purge": {
    query: Record<string, never>;
    body: null;
    answer: CountAnswer;
  };
  "POST /schedules": {
    query: Record<string, never>;
    body: ScheduleSpec;
    answer: ScheduleView;
  };
  "GET /schedules": {
    query: { name?: string; tenant?: string; owner?: string; limit?: number; cursor?: string; };
    body: null;
    answer: SchedulePage;
  };
  "POST /schedules/preview": {
    query: { count?: number; after?: string; };
    body: PreviewSpec;
    answer: PreviewAnswer;
  };
  "POST /schedules/deploy": {
    query: Record<string, never>;
    body: DeploySpec;
    answer: DeployAnswer;
  };
  "GET /schedules/{schedule_id}": {
    query: Record<string, never>;
    body: null;
    answer: ScheduleView;
  };
  "PATCH /schedules/{schedule_id}": {
    query: Record<string, never>;
    body: { cron?: string | null | null; interval?: number | string | null | null; at?: string | null | null; timezone?: string | null; from?: "finish" | "start" | null; starts_at?: string | null | null; ends_at?: string | null | null; dst?: DstSpec | null; jitter?: number | string | null; calendars?: string[] | null; on_holiday?: "shift" | "skip" | null; catch_up?: "all" | "latest" | "none" | null; catch_up_window?: number | string | null; overlap?: "allow" | "queue" | "replace" | "skip" | null; max_concurrency?: number | null; paused?: boolean | null; name?: string; job?: JobSpec; };
    answer: ScheduleView;
  };
  "DELETE /schedules/{schedule_id}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /schedules/{schedule_id}/pause": {
    query: Record<string, never>;
    body: null;
    answer: ScheduleView;
  };
  "POST /schedules/{schedule_id}/resume": {
    query: Record<string, never>;
    body: null;
    answer: ScheduleView;
  };
  "POST /schedules/{schedule_id}/trigger": {
    query: Record<string, never>;
    body: null;
    answer: OccurrenceView;
  };
  "GET /schedules/{schedule_id}/preview": {
    query: { count?: number; after?: string; };
    body: null;
    answer: PreviewAnswer;
  };
  "GET /schedules/{schedule_id}/occurrences": {
    query: { outcome?: string; after?: string; before?: string; limit?: number; cursor?: string; };
    body: null;
    answer: OccurrencePage;
  };
  "POST /schedules/{schedule_id}/backfill": {
    query: Record<string, never>;
    body: BackfillSpec;
    answer: BackfillAnswer;
  };
  "POST /schedules/{schedule_id}/backfills/{backfill_id}/cancel": {
    query: Record<string, never>;
    body: null;
    answer: CountAnswer;
  };
  "GET /calendars": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: CalendarPage;
  };
  "GET /calendars/{name}": {
    query: Record<string, never>;
    body: null;
    answer: CalendarView;
  };
  "PUT /calendars/{name}": {
    query: Record<string, never>;
    body: CalendarSpec;
    answer: CalendarView;
  };
  "DELETE /calendars/{name}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /triggers": {
    query: Record<string, never>;
    body: TriggerSpec;
    answer: TriggerView;
  };
  "GET /triggers": {
    query: { name?: string; event?: string; tenant?: string; owner?: string; limit?: number; cursor?: string; };
    body: null;
    answer: TriggerPage;
  };
  "POST /triggers/preview": {
    query: Record<string, never>;
    body: TrialSpec;
    answer: TrialAnswer;
  };
  "POST /triggers/deploy": {
    query: Record<string, never>;
    body: DeployTriggersSpec;
    answer: DeployAnswer;
  };
  "GET /triggers/{trigger_id}": {
    query: Record<string, never>;
    body: null;
    answer: TriggerView;
  };
  "PATCH /triggers/{trigger_id}": {
    query: Record<string, never>;
    body: { name?: string; event?: string; job?: JobSpec; filter?: string | Record<string, Json> | null | null; debounce?: number | string | DebounceSpec | null | null; batch?: number | BatchingSpec | null | null; rate_limit?: RateLimitSpec | null | null; paused?: boolean | null; };
    answer: TriggerView;
  };
  "DELETE /triggers/{trigger_id}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /triggers/{trigger_id}/pause": {
    query: Record<string, never>;
    body: null;
    answer: TriggerView;
  };
  "POST /triggers/{trigger_id}/resume": {
    query: Record<string, never>;
    body: null;
    answer: TriggerView;
  };
  "GET /triggers/{trigger_id}/events": {
    query: { outcome?: string; limit?: number; cursor?: string; };
    body: null;
    answer: ArrivalPage;
  };
  "POST /events": {
    query: Record<string, never>;
    body: EventSpec;
    answer: EventView | EventsAnswer;
  };
  "GET /events": {
    query: { type?: string; limit?: number; cursor?: string; };
    body: null;
    answer: EventPage;
  };
  "GET /hooks": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: HookPage;
  };
  "GET /hooks/{name}": {
    query: Record<string, never>;
    body: null;
    answer: HookView;
  };
  "PUT /hooks/{name}": {
    query: Record<string, never>;
    body: HookSpec;
    answer: HookView;
  };
  "DELETE /hooks/{name}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /hooks/{name}": {
    query: Record<string, never>;
    body: null;
    answer: HookAnswer;
  };
  "GET /policy": {
    query: Record<string, never>;
    body: null;
    answer: PolicyView;
  };
  "PUT /policy": {
    query: Record<string, never>;
    body: PolicySpec;
    answer: PolicyView;
  };
  "GET /tenants": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: TenantPage;
  };
  "GET /tenants/{name}": {
    query: Record<string, never>;
    body: null;
    answer: TenantView;
  };
  "PUT /tenants/{name}": {
    query: Record<string, never>;
    body: TenantSpec;
    answer: TenantView;
  };
  "GET /autoscale": {
    query: { target?: string; queue?: string; cpu?: number; memory?: string; storage?: string; gpu?: number; };
    body: null;
    answer: AutoscaleView;
  };
  "GET /reports/waste": {
    query: { tenant?: string; name?: string; since?: string; limit?: number; };
    body: null;
    answer: WasteView;
  };
  "POST /simulations": {
    query: Record<string, never>;
    body: SimulationSpec;
    answer: SimulationView;
  };
  "POST /simulations/trace": {
    query: { name?: string; cpus?: number; workers?: number; cpu?: number; memory?: string; policies?: ("conservative" | "current" | "default" | "easy" | "easy-sjf" | "fcfs" | "recorded" | "strict")[]; };
    body: string;
    answer: SimulationView;
  };
  "GET /alerts": {
    query: { status?: string; limit?: number; cursor?: string; };
    body: null;
    answer: AlertPage;
  };
  "GET /alerts/{name}": {
    query: Record<string, never>;
    body: null;
    answer: AlertView;
  };
  "PUT /alerts/{name}": {
    query: Record<string, never>;
    body: AlertSpec;
    answer: AlertView;
  };
  "DELETE /alerts/{name}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /alerts/{name}/test": {
    query: Record<string, never>;
    body: AlertSpec;
    answer: AlertTrial;
  };
  "PUT /alerts/{name}/silence": {
    query: Record<string, never>;
    body: SilenceSpec;
    answer: AlertView;
  };
  "DELETE /alerts/{name}/silence": {
    query: Record<string, never>;
    body: null;
    answer: AlertView;
  };
  "GET /alert-notices": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: NoticePage;
  };
  "GET /alert-channels": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: ChannelPage;
  };
  "PUT /alert-channels/{name}": {
    query: Record<string, never>;
    body: ChannelSpec;
    answer: ChannelView;
  };
  "DELETE /alert-channels/{name}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "POST /alert-channels/{name}/test": {
    query: Record<string, never>;
    body: null;
    answer: ChannelTrial;
  };
  "GET /healthz": {
    query: Record<string, never>;
    body: null;
    answer: Health;
  };
  "GET /readyz": {
    query: Record<string, never>;
    body: null;
    answer: Health;
  };
  "GET /stats": {
    query: Record<string, never>;
    body: null;
    answer: StatsView;
  };
  "GET /stats/history": {
    query: { window?: "day" | "hour"; };
    body: null;
    answer: HistoryView;
  };
  "GET /attention": {
    query: Record<string, never>;
    body: null;
    answer: AttentionView;
  };
  "GET /timeline": {
    query: { after?: string; before?: string; worker_id?: string; };
    body: null;
    answer: TimelineView;
  };
  "GET /cluster": {
    query: Record<string, never>;
    body: null;
    answer: ClusterView;
  };
  "GET /metrics": {
    query: Record<string, never>;
    body: null;
    answer: string;
  };
  "GET /quarantine": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: QuarantinePage;
  };
  "POST /quarantine/repair": {
    query: Record<string, never>;
    body: RepairSpec;
    answer: RepairView;
  };
  "GET /stream": {
    query: { digest?: boolean; };
    body: null;
    answer: string;
  };
  "GET /session": {
    query: Record<string, never>;
    body: null;
    answer: SessionView;
  };
  "POST /session": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "DELETE /session": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "GET /tokens": {
    query: { limit?: number; cursor?: string; };
    body: null;
    answer: TokenPage;
  };
  "POST /tokens": {
    query: Record<string, never>;
    body: TokenSpec;
    answer: NewTokenView;
  };
  "DELETE /tokens/{token_id}": {
    query: Record<string, never>;
    body: null;
    answer: null;
  };
  "GET /audit": {
    query: { token_id?: string; target?: string; after?: string; before?: string; limit?: number; cursor?: string; };
    body: null;
    answer: AuditPage;
  };
}
