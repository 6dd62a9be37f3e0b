"""The options that this package answers for. Any other is its author's, wherever its file lies: what goes
wrong in it is told by its name, file and line, and is no fault of the harness."""

OPTIONS = {
    "prune": """
        chain expected_attention heavy_hitter keep_last keydiff knorm none random sink_window
        snapkv tova
    """,
    "cache": "auto cloned deepcopy dynamic manual static view",
    "save": "blosc2 gzip memory pickle safetensors torch",
    "quantize": "fp8_e4m3 fp8_e5m2 int4 int8 kivi library none",
    "engine": "llamacpp mlx openai transformers",
    "fault": """
        activation_changed adapter_active aliased_cache attention_scale_changed bit_flip
        block_overwritten blocks_foreign buffer_reordered buffer_token_doubled
        buffer_token_dropped config_heads_changed config_softcap convolution_rolled crop_zero
        doubled_bos dtype_relabelled dtype_round_trip embedding_rescaled embedding_row_edited
        embedding_rows_shifted format_newer format_older generation_flags generator_bytes
        generator_restarted head_layout head_permutation indexer_foreign indexer_lost
        indexer_shifted key_tuned key_value_exchanged layer_swap layers_shifted
        layout_relabelled logits_after_temperature logits_of_another_request
        logits_of_another_step logits_rounded lora_merged mask_hides_history mask_wrong_length
        merges_reordered mlp_tuned none norm_epsilon_changed norm_gain_rounded norm_gain_scaled
        offset_is_rows other_session output_tuned padding_attended padding_unmasked
        payload_truncated position_off_by_one position_restarted position_slice_relative
        position_wrong_after_pruning prefix_doubled prefix_lost prefix_reordered query_tuned
        recurrent_ahead recurrent_behind recurrent_foreign recurrent_ignored
        repetition_penalty_changed restore_nothing restore_race ring_rotated rope_base_changed
        rope_factors_switched rope_scaling_changed same_shape_fine_tune sampler_document_edited
        sampler_of_another scales_lost scales_shifted special_rule_flipped stale_by_one
        stale_tail stale_values suffix_for_prefix tail_only temperature_changed template_edited
        tokenizer_other_revision top_k_changed transfer_failed transposed_layout
        trimmed_by_constant turn_count_as_position value_tuned vocabulary_resized
        weights_replaced window_ignored zero_page
    """,
    "tokenizer": "chat explicit library raw",
}


def ships(group: str, option: str) -> bool:
    """Whether `option` of `group` is one of ours; so is every one of a group that takes none from outside."""
    return group not in OPTIONS or option in OPTIONS[group].split()
