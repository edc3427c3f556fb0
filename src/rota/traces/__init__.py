"""OpenTelemetry traces: makes spans of jobs and executions and exports them with OTLP."""
