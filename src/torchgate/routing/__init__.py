"""From a request to its route, and what a route does to paths and fields.

Pure, the same for the gateway and ``explain``: no sockets, no clocks, no configuration file; it works on the frozen
objects of `torchgate.schema.routes`. Read in this order:

- `table`: from host and path to the most specific route.
- `conditions`: methods, header fields and query; how specific they are.
- `patterns`: expressions that match in linear time.
- `template`: texts with placeholders.
- `edits`: set, add and remove header fields.
- `rewrite`: paths on their way to an action.
- `redirects`: where a redirect leads.
- `check`: what is wrong with a route by itself.
- `explain`: what would become of a request; its parts are `explain_question` (what is asked), `nearest` (why a
  route does not match), `explain_places` (listener, host, certificate), `explain_refusals` (what is decided before
  anything is asked), `explain_settings` (actions, pools, limits) and `explain_fields` (header fields).
- `ties`, `overlap`: routes that can't be told apart; whether two patterns can meet.
"""
