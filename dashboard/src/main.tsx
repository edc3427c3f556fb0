// Starts the dashboard.

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App } from "./app";
import { applyTheme, readTheme } from "./lib/theme";
import "./styles/theme.css";
import "./styles/shell.css";
import "./styles/parts.css";
import "./styles/tables.css";
import "./styles/charts.css";

applyTheme(readTheme());
const root = document.getElementById("root");
if (root)
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
