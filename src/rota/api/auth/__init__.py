"""Authentication and access: tokens, browser sessions, roles (RBAC), the audit log."""
