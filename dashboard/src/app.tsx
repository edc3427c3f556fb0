// The application: session, frame, and the page for the current address.

import { QueryClientProvider } from "@tanstack/react-query";
import { Component, type ReactNode, useCallback, useEffect, useState } from "react";
import { call, onSignedOut, type Problem } from "./api/client";
import { client, line } from "./api/live";
import type { SessionView } from "./api/schema.gen";
import { SessionProvider } from "./api/session";
import { match, usePlace } from "./lib/router";
import { Alert, Alerts } from "./pages/Alerts";
import { DeadLetters } from "./pages/DeadLetters";
import { Job } from "./pages/Job";
import { Jobs } from "./pages/Jobs";
import { Overview } from "./pages/Overview";
import { Queues } from "./pages/Queues";
import { Schedule, Schedules } from "./pages/Schedules";
import { Settings } from "./pages/Settings";
import { SignIn } from "./pages/SignIn";
import { Simulate } from "./pages/Simulate";
import { Timeline } from "./pages/Timeline";
import { Trigger, Triggers } from "./pages/Triggers";
import { Worker, Workers } from "./pages/Workers";
import { Notifications } from "./parts/Actions";
import { Empty, Link, Loading, Trouble } from "./parts/basics";
import { Shell } from "./parts/Shell";

const PAGES: readonly [string, string, (found: Record<string, string>) => ReactNode][] = [
  ["/", "Overview", () => <Overview />],
  ["/ui/jobs", "Jobs", () => <Jobs />],
  ["/ui/jobs/{id}", "Job", ({ id = "" }) => <Job key={id} id={id} />],
  ["/ui/dead-letters", "Dead letters", () => <DeadLetters />],
  ["/ui/workers", "Workers", () => <Workers />],
  ["/ui/workers/{id}", "Worker", ({ id = "" }) => <Worker key={id} id={id} />],
  ["/ui/timeline", "Timeline", () => <Timeline />],
  ["/ui/queues", "Queues and tenants", () => <Queues />],
  ["/ui/schedules", "Schedules", () => <Schedules />],
  ["/ui/schedules/{id}", "Schedule", ({ id = "" }) => <Schedule key={id} id={id} />],
  ["/ui/triggers", "Triggers", () => <Triggers />],
  ["/ui/triggers/{id}", "Trigger", ({ id = "" }) => <Trigger key={id} id={id} />],
  ["/ui/alerts", "Alerts", () => <Alerts />],
  ["/ui/alerts/{name}", "Alert", ({ name = "" }) => <Alert key={name} name={name} />],
  ["/ui/simulate", "Simulate", () => <Simulate />],
  ["/ui/settings", "Settings", () => <Settings />],
];

export function App() {
  const [session, setSession] = useState<SessionView | "none" | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const start = useCallback(() => {
    call("GET /session")
      .then((found) => {
        setProblem(null);
        setSession(found);
      })
      .catch((error: unknown) => {
        if ((error as Problem).status === 401) setSession("none");
        else {
          setProblem(error as Problem);
          setTimeout(start, 2_000);
        }
      });
  }, []);
  useEffect(start, [start]);
  useEffect(() => onSignedOut(() => setSession("none")), []);
  const signedIn = session !== null && session !== "none";
  useEffect(() => {
    if (!signedIn) return;
    line.open();
    return () => line.close();
  }, [signedIn]);
  if (session === "none") return <SignIn onSignedIn={start} />;
  if (session === null) return problem ? <Trouble error={problem} /> : <Loading />;
  return (
    <QueryClientProvider client={client}>
      <SessionProvider session={session}>
        <Notifications>
          <Shell
            onSignOut={() => {
              client.clear();
              setSession("none");
            }}
          >
            <Page />
          </Shell>
        </Notifications>
      </SessionProvider>
    </QueryClientProvider>
  );
}

function Page() {
  const { path } = usePlace();
  for (const [pattern, title, draw] of PAGES) {
    const found = match(pattern, path);
    if (found) return <Fence key={path}>{titled(title, draw(found))}</Fence>;
  }
  return (
    <Empty title="Page not found.">
      <Link to="/">Overview</Link>
    </Empty>
  );
}

function titled(title: string, page: ReactNode): ReactNode {
  document.title = `${title} · Rota`;
  return page;
}

/** Error boundary: an error in a page does not affect the frame. */
class Fence extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    if (!this.state.error) return this.props.children;
    return (
      <>
        <Trouble error={this.state.error} />
        <p>
          An unexpected error occurred on this page.{" "}
          <button type="button" onClick={() => this.setState({ error: null })}>
            Reload
          </button>
        </p>
      </>
    );
  }
}
