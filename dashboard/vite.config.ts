import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

const server = process.env.ROTA_URL ?? "http://127.0.0.1:7070";
const calls =
  "^/(jobs|workers|executions|queues|schedules|calendars|triggers|events|hooks|tokens|audit|stats|attention|timeline|cluster|stream|session|dead-letters|metrics|docs|openapi.json|static)";

// Files go flat into one folder, which the server serves at /static/; names carry a hash.
export default defineConfig({
  plugins: [react()],
  base: "/static/",
  publicDir: false,
  build: {
    outDir: "../src/rota/api/static/dashboard",
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    cssTarget: ["chrome123", "firefox121", "safari17.5"],
    // A strict content security policy takes no data: addresses for styles or fonts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 600,
  },
  server: { proxy: { [calls]: { target: server, changeOrigin: true } } },
});
