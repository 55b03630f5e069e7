"""The types that the lines of a Codex rollout have; one that is not here is counted as unknown."""

from __future__ import annotations

SILENT = frozenset({
    "dynamic_tools_updated", "inter_agent_communication", "inter_agent_communication_metadata", "realtime_item",
    "security_risk_score", "state", "token_usage_record", "world_state",
})  # fmt: skip
"""Types of lines that 0.171.0 or older versions write and that are no part of the conversation."""
CALLS = frozenset({
    "custom_tool_call", "function_call", "image_generation_call", "local_shell_call", "tool_search_call",
    "web_search_call",
})  # fmt: skip
"""Response items that call a tool."""
OUTPUTS = frozenset({
    "custom_tool_call_output", "function_call_output", "local_shell_call_output", "mcp_tool_call_output",
    "tool_search_output",
})  # fmt: skip
"""Response items with what came back of a call."""
SILENT_ITEMS = frozenset({
    "additional_tools", "compaction", "compaction_summary", "compaction_trigger", "configuration_update",
    "context_compaction", "ghost_snapshot", "other",
})  # fmt: skip
"""Response items that are no part of the conversation."""
SILENT_EVENTS = frozenset({
    "agent_message", "agent_reasoning", "agent_reasoning_raw_content", "agent_reasoning_section_break",
    "apply_patch_approval_request", "background_event", "collab_agent_interaction_begin",
    "collab_agent_interaction_end", "collab_agent_spawn_begin", "collab_agent_spawn_end", "collab_close_begin",
    "collab_close_end", "collab_resume_begin", "collab_resume_end", "collab_waiting_begin", "collab_waiting_end",
    "deprecation_notice", "dynamic_tool_call_request", "dynamic_tool_call_response", "elicitation_request",
    "exec_approval_request", "exec_command_begin", "exec_command_end", "exited_review_mode", "guardian_assessment",
    "guardian_warning", "hook_completed", "hook_started", "image_generation_begin", "image_generation_end",
    "item_started", "mcp_startup_complete", "mcp_startup_update", "mcp_tool_call_begin", "mcp_tool_call_end",
    "model_reroute", "model_verification", "patch_apply_begin", "patch_apply_end", "plan_update",
    "request_permissions", "request_user_input", "session_configured", "shutdown_complete", "stream_error",
    "sub_agent_activity", "task_started", "terminal_interaction", "thread_goal_updated", "thread_queue_changed",
    "thread_settings_applied", "token_count", "turn_diff", "turn_moderation_metadata", "turn_started", "undo_completed",
    "user_message", "view_image_tool_call", "warning", "web_search_begin", "web_search_end",
})  # fmt: skip
"""Events that 0.171.0 knows (its own list) or older versions wrote, and that make no turn."""
DONE_ITEMS = frozenset({
    "AgentMessage", "CollabAgentToolCall", "CommandExecution", "ContextCompaction", "DynamicToolCall",
    "EnteredReviewMode", "ExitedReviewMode", "FileChange", "FunctionCallOutput", "HookPrompt", "ImageGeneration",
    "ImageView", "McpToolCall", "Plan", "Reasoning", "Sleep", "SubAgentActivity", "UserMessage", "WebSearch",
})  # fmt: skip
"""Items of item_completed that 0.171.0 knows (its own list)."""
