"""The fault table: one row per fault, with the checks that have to name it.

v validation, d digest, i identity, l logits. More may notice; fewer is a failure.
"""

CASES = {
    "layer_swap": "l",
    "head_permutation": "l",
    "dtype_round_trip": "l",
    "transposed_layout": "l",
    "stale_by_one": "vl",
    "stale_values": "l",
    "aliased_cache": "vl",
    "key_value_exchanged": "l",
    "other_session": "l",
    "zero_page": "dl",
    "scales_lost": "l",
    "scales_shifted": "l",
    "payload_truncated": "v",
    **{f"bit_flip bit={bit}": "d" for bit in (0, 6, 7, 10, 14, 15)},
    "block_overwritten": "l",
    "suffix_for_prefix": "l",
    "transfer_failed": "l",
    "blocks_foreign": "l",
    "tail_only": "vl",
    "restore_race": "l",
    "ring_rotated": "l",
    "stale_tail": "vl",
    "trimmed_by_constant": "vl",
    "crop_zero": "vl",
    "head_layout": "l",
    "layers_shifted": "l",
    "restore_nothing": "l",
    "recurrent_ignored": "l",
    "recurrent_ahead": "l",
    "recurrent_foreign": "l",
    "recurrent_behind": "l",
    "convolution_rolled": "l",
    "indexer_lost": "l",
    "indexer_foreign": "l",
    "indexer_shifted": "l",
    "embedding_row_edited": "il",
    "embedding_rows_shifted": "il",
    "embedding_rescaled": "il",
    "vocabulary_resized": "i",
    "position_restarted": "vl",
    "position_off_by_one": "l",
    "position_slice_relative": "l",
    "position_wrong_after_pruning": "vl",
    "offset_is_rows": "vl",
    "rope_factors_switched": "l",
    "rope_base_changed": "il",
    "rope_scaling_changed": "il",
    "buffer_token_dropped": "vl",
    "buffer_token_doubled": "vl",
    "buffer_reordered": "vl",
    "turn_count_as_position": "vl",
    "mask_wrong_length": "v",
    "mask_hides_history": "vl",
    "padding_unmasked": "vl",
    "padding_attended": "l",
    "window_ignored": "i",
    "config_heads_changed": "i",
    "config_softcap": "il",
    "generation_flags": "i",
    "activation_changed": "il",
    "mlp_tuned": "il",
    "norm_gain_scaled": "il",
    "norm_gain_rounded": "il",
    "norm_epsilon_changed": "il",
    "query_tuned": "il",
    "key_tuned": "il",
    "value_tuned": "il",
    "output_tuned": "il",
    "lora_merged": "il",
    "same_shape_fine_tune": "il",
    "attention_scale_changed": "il",
    "weights_replaced": "il",
    "adapter_active": "il",
    "logits_of_another_step": "l",
    "logits_of_another_request": "l",
    "logits_after_temperature": "l",
    "logits_rounded": "l",
    "special_rule_flipped": "i",
    "merges_reordered": "i",
    "template_edited": "i",
    "tokenizer_other_revision": "i",
    "format_older": "v",
    "format_newer": "v",
    "layout_relabelled": "v",
    "dtype_relabelled": "v",
    "prefix_lost": "vl",
    "prefix_doubled": "vl",
    "prefix_reordered": "vl",
    "doubled_bos": "vl",
    "generator_restarted": "i",
    "generator_bytes": "d",
    "temperature_changed": "i",
    "repetition_penalty_changed": "i",
    "top_k_changed": "i",
    "sampler_document_edited": "v",
    "sampler_of_another": "i",
}

# what a diagnosis of the damage has to say
CAUSES = {
    "scale": """
        scales_lost scales_shifted
    """,
    "block": """
        aliased_cache block_overwritten blocks_foreign crop_zero other_session payload_truncated
        restore_nothing ring_rotated stale_by_one stale_tail stale_values suffix_for_prefix
        tail_only transfer_failed trimmed_by_constant zero_page
    """,
    "recurrent state": """
        convolution_rolled recurrent_ahead recurrent_behind recurrent_foreign recurrent_ignored
    """,
    "indexer": """
        indexer_foreign indexer_lost indexer_shifted
    """,
    "rounding": """
        dtype_round_trip
    """,
    "head": """
        head_layout head_permutation transposed_layout
    """,
    "layer": """
        key_value_exchanged layer_swap layers_shifted restore_race
    """,
    "identity": """
        embedding_rescaled embedding_row_edited embedding_rows_shifted vocabulary_resized
        rope_base_changed rope_scaling_changed window_ignored activation_changed
        config_heads_changed config_softcap generation_flags mlp_tuned norm_epsilon_changed
        norm_gain_rounded norm_gain_scaled adapter_active attention_scale_changed key_tuned
        lora_merged output_tuned query_tuned same_shape_fine_tune value_tuned weights_replaced
        merges_reordered special_rule_flipped template_edited tokenizer_other_revision
        dtype_relabelled format_newer format_older layout_relabelled generator_bytes
        generator_restarted repetition_penalty_changed sampler_document_edited sampler_of_another
        temperature_changed top_k_changed
    """,
    "position": """
        offset_is_rows position_off_by_one position_restarted position_slice_relative
        position_wrong_after_pruning rope_factors_switched turn_count_as_position
    """,
    "token buffer": """
        buffer_reordered buffer_token_doubled buffer_token_dropped doubled_bos prefix_doubled
        prefix_lost prefix_reordered
    """,
    "mask": """
        mask_hides_history mask_wrong_length padding_attended padding_unmasked
    """,
    "logits": """
        logits_after_temperature logits_of_another_request logits_of_another_step logits_rounded
    """,
}
CAUSE = {name: cause for cause, names in CAUSES.items() for name in names.split()}
CAUSE |= {name: "block" for name in CASES if name.startswith("bit_flip")}
